package capture

import "github.com/sonde-operator/sonde/api/v1alpha1"

// Form is what the files of a capture are.
type Form int

// Forms of files.
const (
	// PCAPNG has packets.
	PCAPNG Form = iota
	// NDJSON has events, one a line.
	NDJSON
	// Flap has the lines of FLAP. They do not say whose they are, so that the files stay apart.
	Flap
)

// FormOf the files of a capture.
func FormOf(c v1alpha1.Capture) Form {
	t, ok := c.(*v1alpha1.Trace)
	switch {
	case !ok:
		return PCAPNG
	case t.Spec.Format == v1alpha1.TraceFlap:
		return Flap
	}
	return NDJSON
}

// extension of a file's name.
func (f Form) extension() string {
	if f == NDJSON {
		return ".ndjson"
	}
	return ".pcapng"
}
