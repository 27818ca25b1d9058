package capture

import (
	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/kind"
)

// traits are the plugin's differences between the kinds of captures.
type traits struct {
	kind kind.Capture
	unit live.Unit
	// form of the files of a capture of this kind.
	form func(v1alpha1.Capture) Form
	// counts of one Pod: packets or events in its files, and lost ones.
	counts func(v1alpha1.PodResult) (count, lost int64)
	// gate is nil where new Pods do not wait.
	gate func(v1alpha1.Capture) *v1alpha1.TraceGate
}

var traitsByKind = map[string]traits{
	kind.PacketCapture.Name: {
		kind: kind.PacketCapture, unit: live.Packets,
		form:   func(v1alpha1.Capture) Form { return PCAPNG },
		counts: func(p v1alpha1.PodResult) (int64, int64) { return p.Packets, p.Dropped.Total() },
		gate:   func(v1alpha1.Capture) *v1alpha1.TraceGate { return nil },
	},
	kind.Trace.Name: {
		kind: kind.Trace, unit: live.Events,
		form: func(c v1alpha1.Capture) Form {
			if c.(*v1alpha1.Trace).Spec.Format == v1alpha1.TraceFlap {
				return Flap
			}
			return NDJSON
		},
		counts: func(p v1alpha1.PodResult) (int64, int64) { return p.Events, p.LostEvents() },
		gate:   func(c v1alpha1.Capture) *v1alpha1.TraceGate { return c.(*v1alpha1.Trace).Spec.Gate },
	},
}

func traitsOf(c v1alpha1.Capture) traits { return traitsByKind[c.KindName()] }

// UnitOf returns the unit in which a capture is counted.
func UnitOf(c v1alpha1.Capture) live.Unit { return traitsOf(c).unit }

// Form is the format of a capture's files.
type Form int

// Forms of files.
const (
	// PCAPNG files hold packets.
	PCAPNG Form = iota
	// NDJSON files hold events, one in each line.
	NDJSON
	// Flap files hold the lines of FLAP. These do not name their Pod, so the files of several Pods are not merged.
	Flap
)

// FormOf returns the format of a capture's files.
func FormOf(c v1alpha1.Capture) Form { return traitsOf(c).form(c) }

// extension of a file's name.
func (f Form) extension() string {
	if f == NDJSON {
		return ".ndjson"
	}
	return ".pcapng"
}
