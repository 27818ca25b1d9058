package tracefmt

import (
	"bytes"
	"strconv"
	"time"
)

// The lines of FLAP (github.com/amirhnajafiz/flap), which its readers take apart as ParseFlap does.
//
// Both lines of a call are written when it has ended, one behind the other: the time of an enter may be before that of
// the line above it, as it is where a thread waits while others go on.

// FlapSource is the file of FLAP that a group's calls go to, without its number: trace_SOURCE_N.log. FLAP has two.
func FlapSource(group string) string {
	if group == "memory" {
		return "memory"
	}
	return "io"
}

// flapNames are those of the kernel's tracepoints, where they are not the calls'.
var flapNames = map[string]string{"stat": "newstat", "lstat": "newlstat", "fstat": "newfstat"}

// flapKeys are FLAP's names for arguments; those that it does not have are left out.
var flapKeys = map[string]string{
	"pathname": "fname", "oldpath": "fname", "target": "fname",
	"fd": "fd", "count": "count", "iovcnt": "count", "newfd": "newfd",
	"addr": "addr", "length": "len", "len": "len", "address": "addr", "sockfd": "fd",
}

// fault is the one event that FLAP has and that is no call. It begins and ends under two names there.
const fault, flapFault, flapFaultEnd = "fault", "page_fault_user", "handle_mm_fault"

// AppendFlap appends the two lines of a call; boot is how long the node had been up when the call ended, which is FLAP's
// clock. Events that are no calls have no lines there, but for page faults; of one boot is the beginning.
func AppendFlap(b []byte, r *Record, boot time.Duration) []byte {
	enter, exit := r.Call, r.Call
	switch n, other := flapNames[r.Call]; {
	case r.Call == fault:
		enter, exit = flapFault, flapFaultEnd
		boot += max(r.Took, 0)
	case !r.HasRet || r.Call == "exit":
		return b
	case other:
		enter, exit = n, n
	}
	b = appendFlapHead(b, r, boot-max(r.Took, 0), "EN", enter)
	b = appendFlapArgs(append(b, '{'), r)
	b = append(b, '}', '\n')
	b = append(appendFlapHead(b, r, boot, "EX", exit), '{')
	if r.HasRet {
		b = strconv.AppendInt(append(b, "ret="...), r.Ret, 10)
	}
	if r.Took >= 0 {
		if r.HasRet {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(append(b, "latency="...), int64(r.Took), 10)
	}
	return append(b, '}', '\n')
}

// appendFlapArgs appends arguments in the kernel's order, but for the descriptor, which is FLAP's first.
func appendFlapArgs(b []byte, r *Record) []byte {
	start := len(b)
	for _, descriptors := range [...]bool{true, false} {
		for i := range r.Args {
			a := &r.Args[i]
			key := flapKey(r.Call, a.Name)
			if key == "" || (key == "fd") != descriptors {
				continue
			}
			if len(b) > start {
				b = append(b, ' ')
			}
			b = appendFlapValue(append(append(b, key...), '='), a)
		}
	}
	return b
}

// flapKey: of dup the old one is simply fd.
func flapKey(call, name string) string {
	if name == "oldfd" {
		if call == "dup" {
			return "fd"
		}
		return name
	}
	return flapKeys[name]
}

func appendFlapHead(b []byte, r *Record, at time.Duration, way, name string) []byte {
	b = strconv.AppendInt(b, int64(at), 10)
	b = appendUint(append(b, " {pid="...), r.HostPID)
	b = appendUint(append(b, " tid="...), r.HostTID)
	b = appendSafe(append(b, " proc="...), r.Comm)
	b = append(append(b, "}{"...), way...)
	b = append(append(b, ' '), name...)
	return append(b, '}')
}

func appendFlapValue(b []byte, a *Arg) []byte {
	switch a.Kind {
	case Text, List:
		return appendSafe(b, a.Text)
	case Hex, Unsigned:
		return strconv.AppendUint(b, uint64(a.Number), 10)
	default:
		return strconv.AppendInt(b, a.Number, 10)
	}
}

// appendSafe writes a text that cannot end a field or a line: its braces, blanks and control characters become
// underscores. An empty one is a dash.
func appendSafe(b, text []byte) []byte {
	if len(text) == 0 {
		return append(b, '-')
	}
	start := len(b)
	b = append(b, text...)
	for i := start; i < len(b); i++ {
		if c := b[i]; c <= ' ' || c == 0x7f || bytes.IndexByte([]byte("{}"), c) >= 0 {
			b[i] = '_'
		}
	}
	return b
}
