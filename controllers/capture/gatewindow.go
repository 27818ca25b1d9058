package capture

import (
	"context"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// The condition Gating promises that a Pod that is created while it is True waits for its tracer (docs/adr/0009-gate.md). So it
// turns True last, when the webhook is in effect, and False first, while Pods are still held and traced.

const (
	// gateSettle is how long API servers may take to read the webhook configuration, and a second more, because times in the
	// status are whole seconds.
	gateSettle = 3 * time.Second
	// gateTail is how long a trace goes on after Gating has turned False, so that the Pods that got its gate before have a node.
	gateTail = 5 * time.Second
)

// observeGateConfig reads whether the webhook is called for the target's new Pods.
func (r *Reconciler) observeGateConfig(ctx context.Context, capture sondev1.Capture, observed *observation) (err error) {
	namespace := capture.Common().TargetNamespace
	if capture.Common().Gate == nil {
		return nil
	}
	observed.protected = gate.Protected(namespace, r.Options.Namespace)
	observed.gateConfigured, err = gate.Configured(ctx, r.GateConfig, namespace)
	return err
}

// gated wakes the captures with a gate when the webhook configuration changes.
func (r *Reconciler) gated(ctx context.Context, _ client.Object) []reconcile.Request {
	list := r.Kind.NewList()
	if err := r.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing "+r.Kind.Name+"s for a change of the gates' configuration")
		return nil
	}
	var requests []reconcile.Request
	for _, capture := range list.Captures() {
		if capture.Common().Gate != nil && !capture.CaptureStatus().Phase.Final() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(capture)})
		}
	}
	return requests
}

func gatingOf(capture sondev1.Capture) *metav1.Condition {
	return apimeta.FindStatusCondition(capture.CaptureStatus().Conditions, sondev1.ConditionGating)
}

// joinsByGate reports whether a Pod was created when it got the gate of this capture. It has a Job then, also when the end has
// passed meanwhile.
func joinsByGate(capture sondev1.Capture, p *podState) bool {
	if capture.Common().Gate == nil || !gatedBy(capture, p.pod.Expand()) {
		return false
	}
	c := gatingOf(capture)
	switch {
	case c == nil:
		return false
	case c.Reason == sondev1.ReasonEnding, c.Reason == sondev1.ReasonNotFollowed:
		return !p.pod.GetCreationTimestamp().After(c.LastTransitionTime.Time)
	default:
		return gate.Gates(capture.CaptureStatus().Conditions)
	}
}

// gateStaysOpen reports whether a capture must not be over yet: the status does not say that no Pod gets its gate, or has said so
// for less than gateTail. A capture that was stopped or refused traces no Pod any more.
func gateStaysOpen(capture sondev1.Capture, observed observation) bool {
	if capture.Common().Gate == nil {
		return false
	}
	c := gatingOf(capture)
	return gate.Gates(capture.CaptureStatus().Conditions) ||
		c != nil && c.Reason == sondev1.ReasonEnding && observed.now.Before(c.LastTransitionTime.Add(gateTail)) &&
			!capture.Common().Stop && !observed.admission.refused()
}

// awaitsGate reports whether the condition Gating turns True by time alone.
func awaitsGate(capture sondev1.Capture, observed observation) bool {
	if c := gatingOf(capture); c != nil && c.Reason != sondev1.ReasonGatePreparing && c.Reason != sondev1.ReasonGateSettling {
		return false
	}
	return observed.gateConfigured
}

// gatingCondition says whether new Pods of the target wait for their tracer. The webhook of every replica reads it.
func gatingCondition(capture sondev1.Capture, observed observation, planned plan) finding {
	if reason, message := gateClosed(capture, observed, planned); reason != "" {
		return finding{metav1.ConditionFalse, reason, message}
	}
	c := gatingOf(capture)
	settling := c != nil && c.Reason == sondev1.ReasonGateSettling
	switch {
	case !observed.gateConfigured:
		return finding{metav1.ConditionFalse, sondev1.ReasonGatePreparing, "the webhook for new Pods is being configured"}
	case c != nil && c.Reason == sondev1.ReasonGating, settling && !observed.now.Before(c.LastTransitionTime.Add(gateSettle)):
		return finding{metav1.ConditionTrue, sondev1.ReasonGating, fmt.Sprintf(
			"Pods of the target that are created from now on wait for their tracer, for up to %v each", gateTimeout(capture))}
	default:
		return finding{metav1.ConditionUnknown, sondev1.ReasonGateSettling, "the API servers load the webhook for new Pods"}
	}
}

// gateClosed says why new Pods do not wait; the reason is empty if they do, or will.
func gateClosed(capture sondev1.Capture, observed observation, planned plan) (reason, message string) {
	switch c := gatingOf(capture); {
	case capture.CaptureStatus().Phase.Final():
		return sondev1.ReasonEnded, "the trace is over"
	case observed.admission.refused():
		return observed.admission.reason, observed.admission.message
	case capture.Common().Stop:
		return sondev1.ReasonStopped, "the trace was stopped"
	case planned.closing, !planned.end.IsZero() && !observed.now.Before(planned.end):
		return sondev1.ReasonEnding, "the trace ends: Pods that are created from now on do not wait"
	case c != nil && c.Reason == sondev1.ReasonGateNotStarted:
		// Keep the condition: the evicted Pods are gone, and their replacements would fail in the same way.
		return c.Reason, c.Message
	case observed.protected:
		return sondev1.ReasonNamespaceProtected, "no Pod of this namespace waits: it is the cluster's own, or the operator's"
	case !capture.Common().FollowPods && !planned.start.IsZero():
		return sondev1.ReasonNotFollowed, "followPods is false: Pods that join are not traced, so they do not wait"
	}
	return gateClosedByPods(capture, observed, planned)
}

// gateClosedByPods says why the Pods so far keep new ones from waiting.
func gateClosedByPods(capture sondev1.Capture, observed observation, planned plan) (reason, message string) {
	if planned.room.fullOfJobs() {
		return sondev1.ReasonCeilingPods, "no further Pod can be traced, so none waits: a new one " + planned.room.waitsForJobs()
	}
	// If a trace does not begin, the webhook and the gates hold its Pods for a bounded time (gate.OfTrace). The condition turns False a
	// minute before that time is over.
	late := planned.start.IsZero() && !observed.now.Before(capture.GetCreationTimestamp().Add(targetTimeout+outcome.StartTimeout+observed.duration))
	for i := range planned.entries {
		e := &planned.entries[i]
		switch {
		case e.Gate != nil && e.Gate.Outcome == sondev1.GateNotStarted && capture.Common().Gate.OnTimeout != sondev1.GateFail:
			return sondev1.ReasonGateNotStarted, fmt.Sprintf(
				"the gate of Pod %s could not start, so no more Pods are gated; see the Pod's init container %s for why, and create a new Trace", e.Name, gateconfig.ContainerName)
		case isQueued(*e) && e.Reason == sondev1.ReasonQueued:
			return e.Reason, "the trace itself is queued, so no Pod waits for it: " + e.Message
		case late && e.Phase == sondev1.PhasePending:
			return e.Reason, "the trace has waited too long to begin, so no Pod waits for it until it begins: " + e.Message
		}
	}
	return "", ""
}
