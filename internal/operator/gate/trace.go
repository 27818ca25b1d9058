package gate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/duration"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// Live reports whether new Pods of a Trace's target get its gate. The controller sets the condition Gating once it has
// admitted the Trace and found room. The Trace may have been stopped since.
func Live(t *sondev1.Trace) bool {
	return t.Spec.Gate != nil && t.Spec.Gate.Enabled && !t.Spec.Stop && t.DeletionTimestamp.IsZero() && !t.Status.Phase.Final() &&
		apimeta.IsStatusConditionTrue(t.Status.Conditions, sondev1.ConditionGating)
}

// Before reports whether a comes before b. A Pod that two Traces gate gets the gate of the older one.
func Before(a, b *sondev1.Trace) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return strings.Compare(string(a.UID), string(b.UID)) < 0
}

// OfTrace returns the options of a Trace's gate, for an operator with this image. maxDuration counts
// from the start of the trace, which must be within target.Timeout.
func OfTrace(t *sondev1.Trace, image string, maxDuration time.Duration) (Options, error) {
	spec := cmp.Or(t.Spec.Gate, &sondev1.TraceGate{})
	timeout := gateconfig.DefaultTimeout
	if spec.Timeout != "" {
		var err error
		if timeout, err = duration.Parse(spec.Timeout); err != nil {
			return Options{}, fmt.Errorf("spec.gate.timeout: %w", err)
		}
	}
	begins := t.CreationTimestamp.Add(target.Timeout)
	if t.Status.StartTime != nil {
		begins = t.Status.StartTime.Time
	}
	return Options{
		Config: gateconfig.Config{
			Timeout: timeout, OnTimeout: gateconfig.OnTimeout(cmp.Or(spec.OnTimeout, sondev1.GateProceed)), Until: begins.Add(maxDuration),
		},
		Image: image, TraceNamespace: t.Namespace, TraceName: t.Name, TraceUID: string(t.UID),
		Containers: t.Spec.Containers,
	}, nil
}
