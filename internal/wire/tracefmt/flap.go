package tracefmt

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// This file writes the lines of FLAP (github.com/amirhnajafiz/flap). ParseFlap parses them as FLAP's readers do.
//
// Both lines of a call are written one after the other when the call has ended. An enter can therefore be older than
// the line above it.

// FlapSource returns the SOURCE of the file that FLAP writes a group's calls to: trace_SOURCE_N.log.
func FlapSource(group string) string {
	if group == "memory" {
		return "memory"
	}
	return "io"
}

// flapNames are the names of the kernel's tracepoints that differ from the names of their calls.
var flapNames = map[string]string{"stat": "newstat", "lstat": "newlstat", "fstat": "newfstat"}

// flapKeys are FLAP's names of arguments. Arguments that it does not have are not written.
var flapKeys = map[string]string{
	"pathname": "fname", "oldpath": "fname", "target": "fname",
	"fd": "fd", "count": "count", "iovcnt": "count", "newfd": "newfd",
	"addr": "addr", "length": "len", "len": "len", "address": "addr", "sockfd": "fd",
}

// fault is the only event of FLAP that is not a call. FLAP has one name for its beginning and another for its end.
const fault, flapFault, flapFaultEnd = "fault", "page_fault_user", "handle_mm_fault"

// AppendFlap appends the two lines of a call. boot is the node's uptime when the call ended; FLAP measures time by it.
// A page fault also has two lines, and boot is then the uptime at its beginning. So has an operation of an io_uring, even one
// without a result. Other events have no lines in FLAP.
func AppendFlap(b []byte, r *Record, boot time.Duration) []byte {
	enter, exit := r.Call, r.Call
	switch n, other := flapNames[r.Call]; {
	case r.Call == fault:
		enter, exit = flapFault, flapFaultEnd
		boot += max(r.Took, 0)
	case !r.HasRet && !strings.HasPrefix(r.Call, "io_uring_"), r.Call == "exit":
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

// appendFlapArgs appends arguments in the kernel's order, except that FLAP has the file descriptor first.
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

// flapKey returns FLAP's name of an argument, or nothing if FLAP does not have it. dup calls its oldfd simply fd.
func flapKey(call, name string) string {
	if name == "oldfd" {
		if call == "dup" {
			return "fd"
		}
		return name
	}
	return flapKeys[name]
}

func appendFlapHead(b []byte, r *Record, at time.Duration, direction, name string) []byte {
	b = strconv.AppendInt(b, int64(at), 10)
	b = appendUint(append(b, " {pid="...), r.HostPID)
	b = appendUint(append(b, " tid="...), r.HostTID)
	b = appendSafe(append(b, " proc="...), r.Comm)
	b = append(append(b, "}{"...), direction...)
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

// appendSafe appends a text whose braces, blanks and control characters become underscores, in ASCII and beyond, so that it
// cannot end a field or a line. So do bytes that are not UTF-8, which would end a reader. An empty text becomes a dash.
func appendSafe(b, text []byte) []byte {
	if len(text) == 0 {
		return append(b, '-')
	}
	for len(text) > 0 {
		r, n := rune(text[0]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(text)
		}
		if r <= ' ' || r == '{' || r == '}' || r >= 0x7f && !unicode.IsPrint(r) || r == utf8.RuneError && n == 1 {
			b = append(b, '_')
		} else {
			b = append(b, text[:n]...)
		}
		text = text[n:]
	}
	return b
}
