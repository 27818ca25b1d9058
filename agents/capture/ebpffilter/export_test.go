package ebpffilter

// WithoutDirectLoads makes every load treat its bytes as outside of the linear part.
func WithoutDirectLoads() Option { return func(t *translator) { t.indirect = true } }
