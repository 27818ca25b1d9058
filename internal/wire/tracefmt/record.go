// Package tracefmt reads and writes traces: newline-delimited JSON with one line for each event, and the lines of FLAP,
// whose readers expect an enter and an exit of each call. The tracer and the plugin share it.
package tracefmt

import "time"

// Record is one event of a trace. An Encoder keeps no reference to its texts. The texts from a Reader belong to the caller.
type Record struct {
	// Pod is set in files with the traces of several Pods, and PodUID where several of them have that name. Otherwise
	// both are empty, and the header has them.
	Pod, PodUID string
	// Time at which the call ended.
	Time time.Time
	// Call is the name of the system call or of the event, like exec, fork and exit.
	Call string
	// Group of calls that it belongs to.
	Group string
	// Container of the Pod; empty if it is unknown.
	Container string
	// PID and TID in the container's PID namespace; HostPID and HostTID in the node's.
	PID, TID, HostPID, HostTID uint32
	UID                        uint32
	Comm                       []byte
	Args                       []Arg
	// HasRet says that the call has a result: Ret, and Errno if it failed. A connection has only an Errno.
	HasRet bool
	Ret    int64
	Errno  string
	// Took is the duration of the call; negative if it was not measured.
	Took time.Duration
	// Path that the call is about, absolute in the mount namespace of the container; empty if it is unknown.
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
	Hex // written as the string 0x...
	Text
	List // of texts, each followed by a zero byte
	Bool // true where the number is not zero
)
