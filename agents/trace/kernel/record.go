package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"unsafe"
)

// HeadLen is the length of a record's head in bytes.
const HeadLen = int(unsafe.Sizeof(Head{}))

// Record is a parsed record. Its parts point into the ring's memory, which is valid until the ring's Free.
type Record struct {
	Head *Head
	// Raw is the whole record.
	Raw []byte
	// Numbers are the arguments of a call, or the values of another event.
	Numbers [6]uint64
	// Address of a socket, or two descriptors, as the call has them.
	Address []byte
	// First and Second are strings without a terminating zero. In an exec's record, Second has the arguments, each with
	// its zero.
	First, Second []byte
	// TCP is the state of the connection that the record is about; nil in other records.
	TCP *TCP
	// Uring is the operation of an io_uring that the record is about; nil in other records. Entry is its entry in the
	// ring, in the record of its submission.
	Uring *Uring
	Entry []byte
	// Open says that the connection did not end before the trace.
	Open bool
}

// ErrMalformed ends a trace: it is unknown how many records follow the malformed one.
var ErrMalformed = errors.New("the tracer's ring holds a malformed record: please report this with the probe's log")

// headOf returns the head of the record that b begins with; nil if the record is malformed or incomplete.
func headOf(b []byte) *Head {
	if len(b) < HeadLen {
		return nil
	}
	r := (*Head)(unsafe.Pointer(&b[0]))
	if uint64(r.Size) < uint64(HeadLen) || uint64(r.Size) > uint64(len(b)) || r.Size%8 != 0 || r.Numbers > 6 {
		return nil
	}
	return r
}

// Parse finds the parts of the record that b begins with. It returns false if the record is malformed or incomplete.
func (r *Record) Parse(b []byte) bool {
	head := headOf(b)
	if head == nil {
		return false
	}
	r.Raw, r.Uring = b[:head.Size], nil
	b = b[HeadLen:head.Size]
	switch Kind(head.Kind) {
	case KindExec:
		return r.parseExec(head, b)
	case KindConnection, KindRetransmit, KindReset:
		return r.parseTCP(head, b)
	case KindUringSubmit, KindUringEnd:
		return r.parseUring(head, b)
	default:
		return r.parseCall(head, b)
	}
}

// parseCall reads numbers, then an address, then strings.
func (r *Record) parseCall(head *Head, b []byte) bool {
	r.Head = head
	if len(b) < 8*int(head.Numbers) {
		return false
	}
	for i := range head.Numbers {
		r.Numbers[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
	b = b[8*int(head.Numbers):]
	address, first, second := padded(head.Address), padded(head.First), padded(head.Second)
	if len(b) < address+first+second {
		return false
	}
	r.Address = b[:head.Address]
	r.First = CString(b[address:][:head.First])
	r.Second = CString(b[address+first:][:head.Second])
	return true
}

// padded is the length of a part with its padding: each begins at a multiple of 8.
func padded(length uint16) int { return (int(length) + 7) &^ 7 }

// parseTCP reads the connection's state, which follows the head.
func (r *Record) parseTCP(head *Head, b []byte) bool {
	if len(b) < int(unsafe.Sizeof(TCP{})) {
		return false
	}
	r.Head, r.TCP = head, (*TCP)(unsafe.Pointer(&b[0]))
	return true
}

// entryLen is the length of an io_uring's entry: SQE_SIZE of bpf/headers/trace_uring.h.
const entryLen = 64

// parseUring reads the operation, which follows the head, and the rest of a submission as of a call without numbers.
func (r *Record) parseUring(head *Head, b []byte) bool {
	const length = int(unsafe.Sizeof(Uring{}))
	if len(b) < length {
		return false
	}
	r.Uring = (*Uring)(unsafe.Pointer(&b[0]))
	b = b[length:]
	if Kind(head.Kind) == KindUringSubmit {
		if len(b) < entryLen {
			return false
		}
		r.Entry, b = b[:entryLen], b[entryLen:]
	}
	return head.Numbers == 0 && r.parseCall(head, b)
}

// parseExec reads strings whose places are fixed.
func (r *Record) parseExec(head *Head, b []byte) bool {
	if len(b) < maxPath || int(head.First) > maxPath || int(head.Second) > len(b)-maxPath {
		return false
	}
	r.Head, r.First = head, CString(b[:head.First])
	r.Second = b[maxPath : maxPath+int(head.Second)]
	return true
}

// FAULT_PENDING and FAULT_MAJOR of bpf/headers/trace_memory.h.
const (
	faultPending = 1 << 63
	faultMajor   = 1 << 62
)

// Pending reports whether the record is a page fault that has not ended: its duration is not written yet.
func (r *Record) Pending() bool {
	return Kind(r.Head.Kind) == KindFault && atomic.LoadUint64(&r.Head.Duration)&faultPending != 0
}

// FaultDuration returns how long a page fault took, in nanoseconds, and whether it needed a disk. It returns false
// while the fault is pending, and where durations are not measured. The BPF program may write it at any time.
func (r *Record) FaultDuration() (ns uint64, major, measured bool) {
	took := atomic.LoadUint64(&r.Head.Duration)
	return took &^ faultMajor, took&faultMajor != 0, took != 0 && took&faultPending == 0
}

// CString returns a C string without its zero.
func CString(b []byte) []byte {
	end := bytes.IndexByte(b, 0)
	if end < 0 {
		end = len(b)
	}
	return b[:end]
}

// Comm is the thread's name.
func (r *Record) Comm() []byte {
	c := &r.Head.Comm
	return CString(unsafe.Slice((*byte)(unsafe.Pointer(&c[0])), len(c)))
}
