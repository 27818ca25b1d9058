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

// streamOf is where an event belongs; nil where it is not recorded: all calls are, what tells of processes need not be.
func (t *Trace) streamOf(e *event, r *tracefmt.Record) *stream {
	call := traceKind(e.record.Kind) == traceKindKIND_CALL
	switch {
	case t.cfg.Flap != nil && call:
		return t.streams[tracefmt.FlapSource(r.Group)]
	case t.cfg.Flap == nil && (call || slices.Contains(t.cfg.Groups, GroupProcess)):
		return t.streams[""]
	}
	return nil
}
