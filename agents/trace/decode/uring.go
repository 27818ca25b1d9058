package decode

import (
	"cmp"
	"encoding/binary"
	"iter"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Flags of include/uapi/linux/io_uring.h.
const (
	entryFixedFile   = 1 << 0 // IOSQE_FIXED_FILE: the descriptor is an index of the ring's files
	entrySkipSuccess = 1 << 6 // IOSQE_CQE_SKIP_SUCCESS: a success has no result
	entryFlagBits    = 0x7f
	resultMore       = 1 << 1 // IORING_CQE_F_MORE: another result follows
	spliceFixedFile  = 1 << 31
)

// decodeUring makes the event of an operation, when it ends; nil at its submission, and where it is not wanted.
func (d *Decoder) decodeUring(e *kernel.Record, out *tracefmt.Record) *tracefmt.Record {
	var s *submitted
	if kernel.Kind(e.Head.Kind) == kernel.KindUringSubmit {
		if s = d.urings.remember(e); !s.silent() {
			return nil
		}
		s.hasEvent = true
		return d.decodeOperation(s, e, out) // its success has no event of its own
	}
	if s = d.urings.end(e); s != nil {
		return d.decodeOperation(s, e, out)
	}
	if e.Uring.Request == 0 {
		d.setHead(e, out)
		out.Call, out.Group, out.Took = EventCompletion, string(GroupIO), -1
		setResult(e.Head.Ret, out)
		out.Args = append(out.Args, userData(e))
		return out
	}
	return d.decodeOperation(&submitted{head: *e.Head, uring: *e.Uring}, e, out)
}

// Unfinished yields the operations whose end has no record when the trace ends, at a time in nanoseconds since boot. Some
// still wait. Others took effect, and their process has not taken their result: the kernel does not tell them apart. The
// events have no results. Each is valid until the next one.
func (d *Decoder) Unfinished(now uint64) iter.Seq2[*kernel.Head, *tracefmt.Record] {
	return func(yield func(*kernel.Head, *tracefmt.Record) bool) {
		all := slices.SortedFunc(maps.Values(d.urings.byRequest), func(a, b *submitted) int { return cmp.Compare(a.head.Time, b.head.Time) })
		for _, s := range all {
			if s.hasEvent {
				continue
			}
			head := s.head
			head.Time = now
			if r := d.decodeOperation(s, &kernel.Record{Head: &head, Uring: &s.uring}, &d.event); r != nil && !yield(&head, r) {
				return
			}
		}
	}
}

func userData(e *kernel.Record) tracefmt.Arg {
	return tracefmt.Arg{Name: "userData", Kind: tracefmt.Hex, Number: int64(e.Uring.UserData)}
}

// decodeOperation makes an event of an operation as if its thread had made the call. e is its result or, for an operation
// without a result, its submission.
func (d *Decoder) decodeOperation(s *submitted, e *kernel.Record, out *tracefmt.Record) *tracefmt.Record {
	o := operationOf(int(s.head.Call))
	if o == nil || d.calls[o.Number] == nil {
		return nil
	}
	head := s.head
	as := kernel.Record{Head: &head, Uring: e.Uring, First: []byte(s.first), Second: []byte(s.second), Address: s.address}
	head.Time, head.Ret = e.Head.Time, e.Head.Ret
	ended := kernel.Kind(e.Head.Kind) == kernel.KindUringEnd
	if d.timed && e.Head.Time > s.head.Time { // not at its submission
		head.Duration = e.Head.Time - s.head.Time
		if head.Duration < d.minLatency {
			return nil
		}
	}
	if ended && e.Uring.Flags&resultMore != 0 {
		s.head.Time = head.Time // the next result is measured from this one on
	}
	d.setHead(&as, out)
	use := o.entry(&as, s)
	use.began = s.began
	p := d.resolver.process(head.Pid, head.Cgroup)
	p.settle(head.Time)
	out.Container = p.container
	c := o.Call
	if s.uring.Known == 0 {
		c.Args = nil
	}
	d.decodeCall(&c, &as, p, out, use)
	out.Call = uringPrefix + o.Name
	out.Args = append(out.Args, use.args...)
	out.Args = append(out.Args, userData(&as))
	out.HasRet = ended
	return out
}

// descriptorUse says what the descriptors of a call mean.
type descriptorUse struct {
	// fixed: they are indexes of an io_uring's files, and have no names.
	fixed bool
	// untracked: the result changes no descriptor of the process.
	untracked bool
	// began is when an operation was submitted, in nanoseconds since boot; zero for a call.
	began uint64
	args  []tracefmt.Arg
}

// entry reads an operation's arguments, and returns how it uses descriptors.
func (o *operation) entry(as *kernel.Record, s *submitted) (use descriptorUse) {
	if s.uring.Known == 0 {
		use.untracked = true
		return use
	}
	at, b := binary.NativeEndian, s.entry[:]
	index := at.Uint32(b[44:])
	for i, field := range o.fields {
		as.Numbers[i] = [...]uint64{
			entryFD:      uint64(at.Uint32(b[4:])),
			entryOff:     at.Uint64(b[8:]),
			entryAddr:    at.Uint64(b[16:]),
			entryLen:     uint64(at.Uint32(b[24:])),
			entryFlags:   uint64(at.Uint32(b[28:])),
			entryIndex:   uint64(index),
			entryAddrLen: uint64(at.Uint16(b[44:])),
		}[field]
	}
	use.fixed = s.uring.Flags&entryFixedFile != 0
	switch o.Number {
	case unix.SYS_SPLICE, unix.SYS_TEE: // the flags are the last argument
		use.fixed = use.fixed || as.Numbers[len(o.fields)-1]&spliceFixedFile != 0
	case unix.SYS_CLOSE:
		if index > 0 {
			as.Numbers[0], use.fixed = uint64(index-1), true
		}
	case unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_ACCEPT4, unix.SYS_SOCKET:
		if index > 0 { // the new file is in the ring's files
			use.untracked = true
			use.args = append(use.args, countArg("fileIndex", uint64(index)))
		}
	}
	if use.fixed {
		use.untracked = use.untracked || !o.returnsFD
		use.args = append(use.args, tracefmt.Arg{Name: "fixed", Kind: tracefmt.Bool, Number: 1})
	}
	if bits := s.uring.Flags & entryFlagBits; bits != 0 {
		use.args = append(use.args, tracefmt.Arg{Name: "sqeFlags", Kind: tracefmt.Hex, Number: int64(bits)})
	}
	return use
}
