package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// round writes all events up to a time, in their order.
func (t *Trace) round(until uint64) (err error) {
	if err := t.readRare(); err != nil {
		return err
	}
	heads := make([]event, len(t.program.rings))
	times := make([]uint64, len(heads))
	for i, r := range t.program.rings {
		there, err := r.next(&heads[i])
		if err != nil {
			return err
		}
		times[i] = timeOf(&heads[i], there)
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
		if first < 0 || t.holds(&heads[first], t.program.rings[first], until) {
			break
		}
		if len(t.queue) > 0 {
			others = min(others, rareTime(t.queue[0]))
		}
		var there bool
		if t.handsOn() {
			there, err = t.handOn(t.program.rings[first], &heads[first], others)
		} else {
			there, err = t.writeRun(t.program.rings[first], &heads[first], others, until)
		}
		if err != nil {
			return err
		}
		times[first] = timeOf(&heads[first], there)
	}
	for _, r := range t.program.rings {
		r.Free()
	}
	t.sortOut(until)
	t.flushAll()
	return nil
}

// longestFault is how long the reader waits for the end of a page fault, which its record has then.
const longestFault = 100 * time.Millisecond

// holds reports whether the reader waits with an event, and all that come after it: not at the end, and not where the
// ring would overflow for it.
func (t *Trace) holds(e *event, r cpuRing, until uint64) bool {
	return t.program.timesFaults && e.pending() && until != math.MaxUint64 && bootTime() < e.record.Time+uint64(longestFault) && r.Fill() < 0.5
}

// writeRun writes one CPU's events, of which the first is e, up to the time of the others' next one, or to one that is
// held; false says that there is no further one yet.
func (t *Trace) writeRun(r cpuRing, e *event, others, until uint64) (there bool, err error) {
	for there = true; there && e.record.Time <= others && !t.holds(e, r, until); {
		t.write(e)
		r.Skip(uint64(e.record.Size))
		r.FreeMuch()
		if there, err = r.next(e); err != nil {
			return false, err
		}
	}
	return there, nil
}

// timeOf is an event's time; zero if it is not there.
func timeOf(e *event, there bool) uint64 {
	if !there {
		return 0
	}
	return e.record.Time
}

// readRare takes what is in the ring of rare events.
func (t *Trace) readRare() error {
	if t.rare.AvailableBytes() == 0 {
		return nil // to ask and be told so takes calls
	}
	t.rare.SetDeadline(time.Unix(1, 0)) // do not wait
	for {
		rec, err := t.rare.Read()
		if err != nil {
			if errors.Is(err, io.EOF) || isTimeout(err) {
				break
			}
			return fmt.Errorf("read rare events: %w", err)
		}
		t.queue = append(t.queue, rec)
	}
	slices.SortStableFunc(t.queue, func(a, b ringbuf.Record) int { return cmp.Compare(rareTime(a), rareTime(b)) })
	return nil
}

// writeRare writes the rare events up to a time.
func (t *Trace) writeRare(until uint64) error {
	n := 0
	for ; n < len(t.queue) && rareTime(t.queue[n]) <= until; n++ {
		var e event
		if !e.parse(t.queue[n].RawSample) {
			return errNotWhole
		}
		t.write(&e)
	}
	if n > 0 {
		t.queue = slices.Delete(t.queue, 0, n)
	}
	return nil
}

func (t *Trace) write(e *event) {
	whose := t.only.of(e.record.Cgroup)
	if whose == unwanted {
		return
	}
	var r *tracefmt.Record
	if !t.cfg.Binary {
		r = t.describe(e)
	}
	s := t.streamOf(e, r)
	switch {
	case s == nil: // it was needed to know what others mean
	case whose == unsettled, len(t.only.queue) > 0:
		t.hold(e, s, t.appendLines(nil, e, r))
	case t.end != "":
		t.beyond()
	default:
		s.lines = t.appendLines(s.lines, e, r)
		t.added(s, 1)
	}
}

// emit writes an event that was held back.
func (t *Trace) emit(h *heldEvent) {
	if t.end != "" {
		t.beyond()
		return
	}
	h.to.lines = append(h.to.lines, h.lines...)
	t.added(h.to, 1)
}

func (t *Trace) appendLines(to []byte, e *event, r *tracefmt.Record) []byte {
	switch {
	case t.cfg.Binary:
		return append(to, e.whole...)
	case t.cfg.Flap != nil:
		return tracefmt.AppendFlap(to, r, time.Duration(e.record.Time))
	default:
		return t.encoder.Append(to, r)
	}
}

// lose counts the lines that an error left unwritten, here and in sinks that have settled.
func (t *Trace) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.account.LostWriter += t.pending + uint64(len(t.only.queue)) + t.taken - t.account.Written
	t.pending, t.only.queue = 0, nil
}

// beyond counts an event that is not written any more.
func (t *Trace) beyond() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.endErr != nil {
		t.account.LostWriter++
	} else {
		t.account.BeyondLimit++
	}
}
