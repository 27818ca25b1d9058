package trace

import (
	"math"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/output"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// merge writes all events up to a time (nanoseconds since boot) in order.
func (t *Trace) merge(until uint64) (err error) {
	if err := t.rare.Read(); err != nil {
		return err
	}
	heads := make([]kernel.Record, len(t.program.Rings))
	times := make([]uint64, len(heads))
	for i, r := range t.program.Rings {
		ok, err := r.Next(&heads[i])
		if err != nil {
			return err
		}
		times[i] = timeOf(&heads[i], ok)
	}
	for {
		first, others := ring.Earliest(times, until)
		before := until
		if first >= 0 {
			before = times[first]
		}
		if err := t.writeRare(before); err != nil {
			return err
		}
		if first < 0 || t.mustWait(&heads[first], until) {
			break
		}
		if next, ok := t.rare.Time(); ok {
			others = min(others, next)
		}
		var ok bool
		if t.copies() {
			ok, err = t.copyRun(t.program.Rings[first], &heads[first], others)
		} else {
			ok, err = t.writeRun(t.program.Rings[first], &heads[first], others, until)
		}
		if err != nil {
			return err
		}
		times[first] = timeOf(&heads[first], ok)
	}
	for _, r := range t.program.Rings {
		r.Free()
	}
	t.resolveAndRelease(until)
	t.out.Flush()
	return nil
}

// longestFault is how long the reader waits for the end of a page fault, to have its duration.
const longestFault = 100 * time.Millisecond

// mustWait reports whether e is a page fault whose end the reader awaits before it writes e and later events. It does
// not wait at the end of the trace, or while a ring is half full: the rings of all CPUs fill meanwhile.
func (t *Trace) mustWait(e *kernel.Record, until uint64) bool {
	return t.program.TimesFaults && e.Pending() && until != math.MaxUint64 && kernel.BootTime() < e.Head.Time+uint64(longestFault) &&
		max(t.program.Fill(), t.rare.Fill()) < 0.5
}

// writeRun writes one CPU's events from e on, up to the time others, or to an event that must wait. It returns false if
// the ring has no more.
func (t *Trace) writeRun(r kernel.Ring, e *kernel.Record, others, until uint64) (more bool, err error) {
	for more = true; more && e.Head.Time <= others && !t.mustWait(e, until); {
		t.write(e)
		r.Skip(uint64(e.Head.Size))
		r.FreeLarge()
		if more, err = r.Next(e); err != nil {
			return false, err
		}
	}
	return more, nil
}

// copies reports whether records are copied from a ring to their sink without being decoded.
func (t *Trace) copies() bool {
	return t.cfg.Binary && t.out.End() == "" && len(t.containers.names) == 0 && !t.program.TimesFaults
}

// copyRun copies one CPU's records from e on, up to the time others, or to the trace's end. It returns false if the
// ring has no more.
func (t *Trace) copyRun(r kernel.Ring, e *kernel.Record, others uint64) (more bool, err error) {
	for more = true; more && t.out.End() == "" && e.Head.Time <= others; {
		records, n := r.Batch(others, t.out.Room(), output.BufferBytes)
		if !t.out.WriteBatch(t.single, records, n) {
			break
		}
		r.Skip(uint64(len(records)))
		r.FreeLarge()
		if more, err = r.Next(e); err != nil {
			return false, err
		}
	}
	return more, nil
}

// timeOf is an event's time; zero if there is none.
func timeOf(e *kernel.Record, ok bool) uint64 {
	if !ok {
		return 0
	}
	return e.Head.Time
}

// writeRare writes the rare events up to a time.
func (t *Trace) writeRare(until uint64) error {
	for at, ok := t.rare.Time(); ok && at <= until; at, ok = t.rare.Time() {
		var e kernel.Record
		if err := t.rare.Next(&e); err != nil {
			return err
		}
		t.write(&e)
	}
	return nil
}

// write decodes an event and writes it, or holds it back until its container is known.
func (t *Trace) write(e *kernel.Record) {
	state := t.containers.decisionOf(e.Head.Cgroup)
	if state == excluded {
		return
	}
	var r *tracefmt.Record
	if !t.cfg.Binary {
		if r = t.decoder.Decode(e); r == nil {
			return
		}
	}
	t.put(e.Head, e.Raw, r, state)
}

// put writes an event, which Binary has only as the bytes of its record, or holds it back. state is its container's.
func (t *Trace) put(head *kernel.Head, raw []byte, r *tracefmt.Record, state decision) {
	s := t.streamOf(kernel.Kind(head.Kind), r)
	at := time.Duration(head.Time)
	switch {
	case s == nil: // it was decoded only because later events depend on it
	case state == undecided, len(t.held.queue) > 0:
		t.hold(head, s, t.out.Append(nil, raw, r, at))
	default:
		t.out.Write(s, raw, r, at)
	}
}

// streamOf returns the stream of an event; nil if the event is not written.
func (t *Trace) streamOf(kind kernel.Kind, r *tracefmt.Record) *output.Stream {
	switch {
	case kind != kernel.KindCall && !t.writes(kind):
		return nil
	case t.cfg.Flap != nil:
		return t.out.Stream(tracefmt.FlapSource(r.Group))
	default:
		return t.single
	}
}

// writes reports whether events of a kind are written. FLAP has only calls and page faults. Starts and ends of processes are
// always read, but written only with their group.
func (t *Trace) writes(kind kernel.Kind) bool {
	switch kind {
	case kernel.KindCall, kernel.KindFault, kernel.KindUringSubmit, kernel.KindUringEnd:
		return true
	case kernel.KindExec, kernel.KindFork, kernel.KindExit:
		return t.cfg.Flap == nil && slices.Contains(t.cfg.Groups, decode.GroupProcess)
	default:
		return t.cfg.Flap == nil
	}
}
