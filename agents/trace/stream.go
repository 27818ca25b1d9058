package trace

import (
	"slices"

	"github.com/sonde-operator/sonde/internal/tracefmt"
)

// stream is one file's lines that wait to be handed on.
type stream struct {
	out    Sink
	each   int // lines of an event
	lines  []byte
	events int
}

func (c *Config) streams() map[string]*stream {
	if c.Flap == nil {
		return map[string]*stream{"": {out: c.Out, each: 1}}
	}
	all := map[string]*stream{}
	for source, out := range c.Flap {
		all[source] = &stream{out: out, each: 2}
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
		return t.streams[""]
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
