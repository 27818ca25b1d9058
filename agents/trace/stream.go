package trace

import (
	"errors"
	"math"
	"slices"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// stream is one file's lines that wait to be handed on.
type stream struct {
	out    Sink
	lines  []byte
	events uint64
	taken  uint64 // by out
}

func (c *Config) streams() map[string]*stream {
	if c.Flap == nil {
		return map[string]*stream{"": {out: c.Out}}
	}
	all := map[string]*stream{}
	for source, out := range c.Flap {
		all[source] = &stream{out: out}
	}
	return all
}

// streamOf is where an event belongs; nil where it is not recorded: what tells of processes need not be, and FLAP has
// only calls and page faults.
func (t *Trace) streamOf(e *event, r *tracefmt.Record) *stream {
	kind := traceKind(e.record.Kind)
	switch {
	case t.cfg.Flap != nil && (kind == traceKindKIND_CALL || kind == traceKindKIND_FAULT):
		return t.streams[tracefmt.FlapSource(r.Group)]
	case t.cfg.Flap == nil && t.records(kind):
		return t.json
	}
	return nil
}

// records reports whether events of a kind are written: of processes many must be known that nobody has asked for.
func (t *Trace) records(kind traceKind) bool {
	switch kind {
	case traceKindKIND_EXEC, traceKindKIND_FORK, traceKindKIND_EXIT:
		return slices.Contains(t.cfg.Groups, GroupProcess)
	default:
		return true
	}
}

// room is how many events more may be written.
func (t *Trace) room() uint64 {
	if t.cfg.MaxEvents == 0 {
		return math.MaxUint64
	}
	return t.cfg.MaxEvents - min(t.cfg.MaxEvents, t.taken+t.pending)
}

// added: a stream has the lines of so many events more.
func (t *Trace) added(s *stream, events uint64) {
	s.events += events
	t.pending += events
	last := t.room() == 0
	if last {
		t.flushAll()
	} else if len(s.lines) >= lineBuffer {
		t.flush(s)
	}
	if last && t.end == "" {
		t.end = recording.EventLimit
	}
}

func (t *Trace) flushAll() {
	for _, s := range t.streams {
		t.flush(s)
	}
}

// flush hands a stream's lines on. When they are not taken the trace ends, and what still comes is counted.
func (t *Trace) flush(s *stream) {
	if s.events == 0 {
		return
	}
	n, err := s.out.Write(s.lines, int(s.events))
	rest := s.events - uint64(n)
	t.pending -= s.events
	s.lines, s.events = s.lines[:0], 0
	s.taken += uint64(n)
	t.taken += uint64(n)
	t.mu.Lock()
	switch {
	case err == nil:
	case errors.Is(err, errByteLimit):
		t.end = recording.ByteLimit
		t.account.BeyondLimit += rest
	default:
		t.end, t.endErr = recording.Error, err
		t.account.LostWriter += rest
	}
	t.mu.Unlock()
	t.tally()
}

// deliver has what sinks took where it belongs, soon or at once.
func (t *Trace) deliver(wait bool) {
	for _, s := range t.streams {
		if err := s.out.Flush(wait); err != nil && t.endErr == nil {
			t.end, t.endErr = recording.Error, err
		}
	}
	t.tally()
}

// tally counts the events that are where they belong.
func (t *Trace) tally() {
	written := uint64(0)
	for _, s := range t.streams {
		written += s.taken - s.out.Pending()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.account.Written = written
}
