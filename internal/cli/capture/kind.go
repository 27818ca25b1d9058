package capture

import (
	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/kind"
)

// kindOf a capture.
func kindOf(c v1alpha1.Capture) kind.Kind {
	k, _ := kind.Of(c.CaptureKind()) // there is no Capture of another
	return k
}

// UnitOf what a capture takes.
func UnitOf(c v1alpha1.Capture) live.Unit {
	if c.CaptureKind() == kind.Trace.Name {
		return live.Events
	}
	return live.Packets
}

// Counts of one Pod: what is in its files, and what should be there and is in none.
func Counts(u live.Unit, p v1alpha1.PodResult) (taken, lost int64) {
	if u == live.Events {
		return p.Events, p.LostEvents()
	}
	return p.Packets, p.Dropped.Total()
}
