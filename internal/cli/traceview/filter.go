package traceview

import (
	"slices"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Filter says which events of a trace somebody wants to see. What is empty leaves nothing out.
type Filter struct {
	// Groups and Calls by name; an event of either is wanted.
	Groups, Calls []string
	// Containers by name, and Comms, the names that threads have at that moment.
	Containers, Comms []string
	// MinLatency leaves out what took less. What has no duration stays, as in a trace that was made with one.
	MinLatency time.Duration
	// Failed wants only what failed.
	Failed bool
}

// Keeps reports whether the event is one of those.
func (f *Filter) Keeps(r *tracefmt.Record) bool {
	switch {
	case len(f.Groups)+len(f.Calls) > 0 && !slices.Contains(f.Groups, r.Group) && !slices.Contains(f.Calls, r.Call),
		len(f.Containers) > 0 && !slices.Contains(f.Containers, r.Container),
		len(f.Comms) > 0 && !slices.Contains(f.Comms, string(r.Comm)),
		r.Took >= 0 && r.Took < f.MinLatency,
		f.Failed && !failed(r):
		return false
	}
	return true
}
