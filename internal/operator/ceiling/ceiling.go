// Package ceiling holds the cluster-wide limits of captures. They are flags of the manager, so only users
// who may change its Deployment can raise them.
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
	FlagTracersPerNode       = "max-tracers-per-node"
	FlagResultsPerNode       = "max-results-per-node"
	FlagBytesPerNode         = "max-namespace-bytes-per-node"
	FlagCapturesPerNamespace = "max-captures-per-namespace"

	FlagUnfinishedPerNamespace = "max-unfinished-captures-per-namespace"
	FlagExistingPerNamespace   = "max-existing-captures-per-namespace"
)

// The schema's defaults. Users did not write them, so a refusal of a default names the field to set.
const (
	defaultDuration = time.Minute
	defaultBytes    = 1 << 30
)

// Limits are the ceilings; zero is no ceiling. A capture above Duration, Bytes, UnfinishedPerNamespace or ExistingPerNamespace is
// refused. Pods and captures above the others wait.
type Limits struct {
	// Duration of one capture.
	Duration time.Duration
	// Bytes of one Pod's file.
	Bytes int64
	// PodsPerCapture that one capture captures at the same time. 25 times as many, or as CapturesPerNamespace allows, may
	// have Jobs, in all captures of a namespace.
	PodsPerCapture int
	// ProbesPerNode that run at the same time, over all captures. A namespace takes at most as many as stay free for others.
	ProbesPerNode int
	// TracersPerNode are the probes of Traces, and of captures that name processes, among them: each slows all processes of the node.
	// Namespaces share as above.
	TracersPerNode int
	// ResultsPerNode are the results that keepers on the node offer or will offer: its probes count, too. Namespaces share as above.
	ResultsPerNode int
	// BytesPerNode are the maxBytes of all results of one namespace that are counted above. A namespace without any may have one.
	BytesPerNode int64
	// CapturesPerNamespace that run at the same time.
	CapturesPerNamespace int
	// UnfinishedPerNamespace are captures that run or wait.
	UnfinishedPerNamespace int
	// ExistingPerNamespace are all captures, also those that have ended: the manager's cache keeps them until they are deleted.
	ExistingPerNamespace int
}

// BindFlags adds the flags, with defaults that are safe on a small cluster.
func (l *Limits) BindFlags(fs *flag.FlagSet) {
	fs.DurationVar(&l.Duration, FlagDuration, 4*time.Hour, "longest duration of a capture; 0 is no ceiling")
	fs.Int64Var(&l.Bytes, FlagBytes, 4<<30, "largest maxBytes of a capture, in bytes for each Pod; 0 is no ceiling")
	fs.IntVar(&l.PodsPerCapture, FlagPodsPerCapture, 200, "Pods that one capture captures, or one InterceptRequest intercepts, at the same time, others wait; 0 is no ceiling")
	fs.IntVar(&l.ProbesPerNode, FlagProbesPerNode, 40, "probes that run on one node at the same time, others wait; one namespace may take half of them; the same holds for carriers of intercepts; 0 is no ceiling")
	fs.IntVar(&l.TracersPerNode, FlagTracersPerNode, 16, "probes of traces, and of captures with processes, that run on one node at the same time, others wait; one namespace may take half of them; 0 is no ceiling")
	fs.IntVar(&l.ResultsPerNode, FlagResultsPerNode, 60, "results that one node keeps at the same time, with those of running probes, others wait; one namespace may take half of them; 0 is no ceiling")
	fs.Int64Var(&l.BytesPerNode, FlagBytesPerNode, 32<<30, "bytes of the results of one namespace on one node, by their maxBytes and with those of running probes, others wait; 0 is no ceiling")
	fs.IntVar(&l.CapturesPerNamespace, FlagCapturesPerNamespace, 20, "captures of one namespace that run at the same time, others wait; 0 is no ceiling")
	fs.IntVar(&l.UnfinishedPerNamespace, FlagUnfinishedPerNamespace, 100, "captures of one namespace that run or wait, others are refused; 0 is no ceiling")
	fs.IntVar(&l.ExistingPerNamespace, FlagExistingPerNamespace, 500, "captures of one namespace that exist, also ended ones, others are refused; 0 is no ceiling")
}

// Valid refuses negative limits.
func (l Limits) Valid() error {
	for name, value := range map[string]int64{
		FlagDuration: int64(l.Duration), FlagBytes: l.Bytes, FlagPodsPerCapture: int64(l.PodsPerCapture),
		FlagProbesPerNode: int64(l.ProbesPerNode), FlagResultsPerNode: int64(l.ResultsPerNode),
		FlagTracersPerNode:         int64(l.TracersPerNode),
		FlagBytesPerNode:           l.BytesPerNode,
		FlagCapturesPerNamespace:   int64(l.CapturesPerNamespace),
		FlagUnfinishedPerNamespace: int64(l.UnfinishedPerNamespace),
		FlagExistingPerNamespace:   int64(l.ExistingPerNamespace),
	} {
		if value < 0 {
			return fmt.Errorf("--%s=%d: write 0 for no ceiling, or more", name, value)
		}
	}
	return nil
}

// Check returns an error that names the ceiling that a new capture exceeds. A malformed duration passes, because the schema
// refuses it with a better message. An absent duration passes, too: it lasts as long as the ceiling.
func (l Limits) Check(spec sondev1.Common) error {
	d, err := duration.Parse(spec.Duration)
	if err == nil && l.Duration > 0 && d > l.Duration {
		return fmt.Errorf("duration %s%s is above this cluster's ceiling: write at most %s, or ask for %s",
			spec.Duration, defaultNote(d == defaultDuration, "spec.duration, or --for"), l.Duration, Raise(FlagDuration))
	}
	if l.Bytes > 0 && spec.MaxBytes > l.Bytes {
		return fmt.Errorf("maxBytes %d%s is above this cluster's ceiling: write at most %d, or ask for %s",
			spec.MaxBytes, defaultNote(spec.MaxBytes == defaultBytes, "spec.maxBytes, or --max-bytes"), l.Bytes, Raise(FlagBytes))
	}
	return nil
}

// defaultNote says where to set another value if this one is the default.
func defaultNote(isDefault bool, where string) string {
	if !isDefault {
		return ""
	}
	return fmt.Sprintf(" (the default; set %s of kubectl sonde)", where)
}

// defaultLongest is the longest duration of a capture that lasts as long as its Pods, if there is no ceiling.
const defaultLongest = 24 * time.Hour

// DurationOf returns the duration of a capture, or its longest duration if it lasts as long as its Pods.
func (l Limits) DurationOf(spec sondev1.Common) (time.Duration, error) {
	if spec.Duration == "" {
		return cmp.Or(l.Duration, defaultLongest), nil
	}
	return duration.Parse(spec.Duration)
}

// Raise says who can raise the ceiling of a flag, and how. The text follows "ask for", or stands alone.
func Raise(name string) string {
	return fmt.Sprintf("a higher one: a cluster admin sets it by --%s of the manager", name)
}
