// Package ceiling holds the operator-wide limits of what captures may take. They are flags of the
// manager, so that only who may change its Deployment can raise them.
package ceiling

import (
	"cmp"
	"flag"
	"fmt"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/duration"
)

// Names of the flags.
const (
	FlagDuration             = "max-duration"
	FlagBytes                = "max-bytes"
	FlagPodsPerCapture       = "max-pods-per-capture"
	FlagProbesPerNode        = "max-probes-per-node"
	FlagCapturesPerNamespace = "max-captures-per-namespace"
)

// The schema's defaults: who wrote nothing is refused a value that he never saw, and is told what to set.
const (
	defaultDuration = time.Minute
	defaultBytes    = 1 << 30
)

// Limits are the ceilings; zero is none. What is above the first two is refused, what is above the
// others waits.
type Limits struct {
	// Duration of one capture.
	Duration time.Duration
	// Bytes of one Pod's file.
	Bytes int64
	// PodsPerCapture that are captured at the same time.
	PodsPerCapture int
	// ProbesPerNode that run at the same time, over all captures.
	ProbesPerNode int
	// CapturesPerNamespace that are not over at the same time.
	CapturesPerNamespace int
}

// BindFlags adds the flags, with defaults that are safe on a small cluster.
func (l *Limits) BindFlags(fs *flag.FlagSet) {
	fs.DurationVar(&l.Duration, FlagDuration, 4*time.Hour, "longest duration of a capture; 0 is no ceiling")
	fs.Int64Var(&l.Bytes, FlagBytes, 4<<30, "largest maxBytes of a capture, in bytes for each Pod; 0 is no ceiling")
	fs.IntVar(&l.PodsPerCapture, FlagPodsPerCapture, 200, "Pods that one capture captures at the same time, others wait; 0 is no ceiling")
	fs.IntVar(&l.ProbesPerNode, FlagProbesPerNode, 20, "probes that run on one node at the same time, others wait; 0 is no ceiling")
	fs.IntVar(&l.CapturesPerNamespace, FlagCapturesPerNamespace, 20, "captures of one namespace that run at the same time, others wait; 0 is no ceiling")
}

// Valid refuses limits that mean nothing.
func (l Limits) Valid() error {
	for name, value := range map[string]int64{
		FlagDuration: int64(l.Duration), FlagBytes: l.Bytes, FlagPodsPerCapture: int64(l.PodsPerCapture),
		FlagProbesPerNode: int64(l.ProbesPerNode), FlagCapturesPerNamespace: int64(l.CapturesPerNamespace),
	} {
		if value < 0 {
			return fmt.Errorf("--%s=%d: write 0 for no ceiling, or more", name, value)
		}
	}
	return nil
}

// Check says which ceiling a new capture is above. A duration that cannot be read passes: the schema
// refuses it in better words. So does none: it lasts for as long as the ceiling lets it.
func (l Limits) Check(spec sondev1.Common) error {
	d, err := duration.Parse(spec.Duration)
	if err == nil && l.Duration > 0 && d > l.Duration {
		return fmt.Errorf("duration %s%s is above this cluster's ceiling: write at most %s, or ask for %s",
			spec.Duration, unset(d == defaultDuration, "spec.duration, or --for"), l.Duration, Raise(FlagDuration))
	}
	if l.Bytes > 0 && spec.MaxBytes > l.Bytes {
		return fmt.Errorf("maxBytes %d%s is above this cluster's ceiling: write at most %d, or ask for %s",
			spec.MaxBytes, unset(spec.MaxBytes == defaultBytes, "spec.maxBytes, or --max-bytes"), l.Bytes, Raise(FlagBytes))
	}
	return nil
}

// unset says, of a value that is the default, where to set another.
func unset(isDefault bool, where string) string {
	if !isDefault {
		return ""
	}
	return fmt.Sprintf(" (the default; set %s of kubectl sonde)", where)
}

// untilGone is how long a capture lasts at most that is to last as long as its Pods, where no ceiling says it.
const untilGone = 24 * time.Hour

// DurationOf a capture; of one that lasts as long as its Pods, the longest that may be.
func (l Limits) DurationOf(spec sondev1.Common) (time.Duration, error) {
	if spec.Duration == "" {
		return cmp.Or(l.Duration, untilGone), nil
	}
	return duration.Parse(spec.Duration)
}

// Raise says who can raise the ceiling of a flag, and by what; it follows "ask for", or stands alone.
func Raise(name string) string {
	return fmt.Sprintf("a higher one: a cluster admin sets it by --%s of the manager", name)
}
