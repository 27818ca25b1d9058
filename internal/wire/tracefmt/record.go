// Package tracefmt is how a trace is written and read: newline-delimited JSON, one line for each event, and the lines of
// FLAP, whose readers expect an enter and an exit for each call. Tracer and plugin share it.
package tracefmt

import "time"

// Record is one event of a trace. Texts are borrowed by who writes a record, and owned by who has read one.
type Record struct {
	// Pod that it is of, in a file of several Pods' traces; PodUID where there are several of that name. Else both are
	// empty, and the header says it.
	Pod, PodUID string
	// Time when the call ended.
	Time time.Time
	// Call is the system call's name, or the event's, as exec, fork, exit.
	Call string
	// Group of calls that it belongs to.
	Group string
	// Container of the Pod; empty where it is not known.
	Container string
	// PID and TID as the container sees them; HostPID and HostTID as the node does.
	PID, TID, HostPID, HostTID uint32
	UID                        uint32
	Comm                       []byte
	Args                       []Arg
	// HasRet says that there is a result: Ret, and Errno where the call failed. A connection has only an Errno.
	HasRet bool
	Ret    int64
	Errno  string
	// Took is how long the call took; negative where nobody measured.
	Took time.Duration
	// Path that the call is about, absolute as the container sees it; empty where it is not known.
	Path []byte
}

// Arg is an argument: a number, or a text.
type Arg struct {
	Name   string
	Kind   ArgKind
	Number int64
	Text   []byte
}

// ArgKind is how an argument is written.
type ArgKind uint8

// Kinds of arguments.
const (
	Signed ArgKind = iota
	Unsigned
	Hex // as a string: 0x...
	Text
	List // of texts, each with a zero at its end
	Bool // true where the number is not zero
)
