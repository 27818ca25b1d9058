package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"
)

// recordLen is the length of a record's head.
const recordLen = int(unsafe.Sizeof(traceRecord{}))

// event is a record as it lies in a ring, with its parts found. Strings belong to the ring.
type event struct {
	record        *traceRecord
	whole         []byte
	numbers       [6]uint64
	address       []byte // of a socket, or two descriptors, as the call has them
	first, second []byte
	// tcp is what is told of a connection, which is open as long as the trace lasts, or has ended before.
	tcp  *traceTcp
	open bool
}

// errNotWhole ends a trace: nobody knows how many records lie behind one that cannot be read.
var errNotWhole = errors.New("a record of the tracer is not whole: please report this with the probe's log")

// headOf is the head of the record that b begins with; nil if the record is not whole.
func headOf(b []byte) *traceRecord {
	if len(b) < recordLen {
		return nil
	}
	r := (*traceRecord)(unsafe.Pointer(&b[0]))
	if uint64(r.Size) < uint64(recordLen) || uint64(r.Size) > uint64(len(b)) || r.Size%8 != 0 || r.Numbers > 6 {
		return nil
	}
	return r
}

// parse finds the parts of the record that b begins with; false if it is not whole.
func (e *event) parse(b []byte) bool {
	r := headOf(b)
	if r == nil {
		return false
	}
	e.whole = b[:r.Size]
	b = b[recordLen:r.Size]
	switch traceKind(r.Kind) {
	case traceKindKIND_EXEC:
		return e.parseExec(r, b)
	case traceKindKIND_CONNECTION, traceKindKIND_RETRANSMIT, traceKindKIND_RESET:
		return e.parseTCP(r, b)
	default:
		return e.parseCall(r, b)
	}
}

// parseCall: numbers stand behind the head, then an address, then strings.
func (e *event) parseCall(r *traceRecord, b []byte) bool {
	e.record = r
	if len(b) < 8*int(r.Numbers) {
		return false
	}
	for i := range r.Numbers {
		e.numbers[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
	b = b[8*int(r.Numbers):]
	address, first, second := padded(r.Address), padded(r.First), padded(r.Second)
	if len(b) < address+first+second {
		return false
	}
	e.address = b[:r.Address]
	e.first = text(b[address:][:r.First])
	e.second = text(b[address+first:][:r.Second])
	return true
}

// padded is how many bytes a part has with those up to the next one.
func padded(length uint16) int { return (int(length) + 7) &^ 7 }

// parseTCP: what is told of a connection stands behind the head.
func (e *event) parseTCP(r *traceRecord, b []byte) bool {
	if len(b) < int(unsafe.Sizeof(traceTcp{})) {
		return false
	}
	e.record, e.tcp = r, (*traceTcp)(unsafe.Pointer(&b[0]))
	return true
}

// FAULT_PENDING and FAULT_MAJOR of bpf/headers/trace_memory.h.
const (
	faultPending = 1 << 63
	faultMajor   = 1 << 62
)

// took is the record's duration. That of a page fault comes later than the record.
func (e *event) took() uint64 { return atomic.LoadUint64(&e.record.Took) }

// pending reports whether it is a page fault that had not ended.
func (e *event) pending() bool {
	return traceKind(e.record.Kind) == traceKindKIND_FAULT && e.took()&faultPending != 0
}

// parseExec: the strings have fixed places.
func (e *event) parseExec(r *traceRecord, b []byte) bool {
	if len(b) < maxPath || int(r.First) > maxPath || int(r.Second) > len(b)-maxPath {
		return false
	}
	e.record, e.first = r, text(b[:r.First])
	e.second = b[maxPath : maxPath+int(r.Second)] // arguments, each with its zero
	return true
}

// text is a C string without its zero.
func text(b []byte) []byte {
	end := bytes.IndexByte(b, 0)
	if end < 0 {
		end = len(b)
	}
	return b[:end]
}

// comm is the thread's name.
func (e *event) comm() []byte {
	c := &e.record.Comm
	return text(unsafe.Slice((*byte)(unsafe.Pointer(&c[0])), len(c)))
}

// rareTime is the time of a rare event.
func rareTime(r ringbuf.Record) uint64 {
	const at = unsafe.Offsetof(traceRecord{}.Time)
	if len(r.RawSample) < recordLen {
		return 0
	}
	return binary.NativeEndian.Uint64(r.RawSample[at:])
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
