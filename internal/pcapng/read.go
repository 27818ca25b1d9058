package pcapng

// clock converts the time stamps of one interface to nanoseconds since 1970.
type clock struct {
	perSecond uint64
	offset    int64
}
