package ebpffilter

// WithoutDirectLoads makes every load take the way of bytes outside of the linear part.
func WithoutDirectLoads() Option { return func(t *translator) { t.indirect = true } }
