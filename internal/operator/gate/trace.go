package gate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/duration"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// Live reports whether new Pods of a Trace's target get its gate. A stop does not matter before the condition says so.
func Live(t *sondev1.Trace) bool {
	return t.Spec.Gate != nil && t.Spec.Gate.Enabled && t.DeletionTimestamp.IsZero() && !t.Status.Phase.Final() && Gates(t.Status.Conditions)
}

// Gates reports whether new Pods get a gate, as the controller says in the condition Gating. It turns True after the webhook is
// in effect, and False before Pods are no longer held. So Pods get a gate while it is prepared, too.
func Gates(conditions []metav1.Condition) bool {
	c := apimeta.FindStatusCondition(conditions, sondev1.ConditionGating)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == sondev1.ReasonGatePreparing || c.Reason == sondev1.ReasonGateSettling)
}

// Before reports whether a comes before b. A Pod that two Traces gate gets the gate of the older one.
func Before(a, b *sondev1.Trace) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return strings.Compare(string(a.UID), string(b.UID)) < 0
}

// overrun is how much longer than its end a Trace may gate, because no manager has noticed the end. It is longer than it takes
// another manager to become the leader.
const overrun = time.Minute

// until is the last moment that a Trace may gate, if it lasts for maxDuration. A Trace whose end is not known yet has begun
// within target.Timeout, and its end is known within outcome.StartTimeout of that.
func until(t *sondev1.Trace, maxDuration time.Duration) time.Time {
	switch s := &t.Status; {
	case s.EndTime != nil:
		return s.EndTime.Add(overrun)
	case s.StartTime != nil:
		return s.StartTime.Add(outcome.StartTimeout + maxDuration + overrun)
	default:
		return t.CreationTimestamp.Add(target.Timeout + outcome.StartTimeout + maxDuration + overrun)
	}
}

// OfTrace returns the options of a Trace's gate, for an operator with this image.
func OfTrace(t *sondev1.Trace, image string, maxDuration time.Duration) (Options, error) {
	spec := cmp.Or(t.Spec.Gate, &sondev1.TraceGate{})
	timeout := gateconfig.DefaultTimeout
	if spec.Timeout != "" {
		var err error
		if timeout, err = duration.Parse(spec.Timeout); err != nil {
			return Options{}, fmt.Errorf("spec.gate.timeout: %w", err)
		}
	}
	return Options{
		Config: gateconfig.Config{
			Timeout: timeout, OnTimeout: gateconfig.OnTimeout(cmp.Or(spec.OnTimeout, sondev1.GateProceed)), Until: until(t, maxDuration),
		},
		Image: image, TraceNamespace: t.Namespace, TraceName: t.Name, TraceUID: string(t.UID),
		Containers: t.Spec.Containers,
	}, nil
}
