package capture

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/wire/duration"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// gatedBy reports whether a Pod says that it waits, or has waited, for this capture's tracer. It is a hint, which the
// Pod's creator can write.
func gatedBy(capture sondev1.Capture, pod *corev1.Pod) bool {
	return capture.Common().Gate != nil && pod != nil && pod.Annotations[sondev1.AnnotationGatedByUID] == string(capture.GetUID())
}

// gateStarting are why a container waits that has neither failed to start nor run yet.
var gateStarting = []string{"", "PodInitializing", "ContainerCreating"}

// observeGate says how the gate of a Pod ended, as far as that is known: of one that cannot start, when its time is over. One
// that was killed, as by its node's reboot, is started again, and has not ended. A result that is known stays, but for better news.
func observeGate(capture sondev1.Capture, pod *corev1.Pod, before *sondev1.GateResult, now time.Time) *sondev1.GateResult {
	if !gatedBy(capture, pod) {
		return before
	}
	i := slices.IndexFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == gateconfig.ContainerName })
	if i < 0 {
		return before
	}
	status := &pod.Status.InitContainerStatuses[i]
	switch state := status.State; {
	case state.Terminated != nil:
		if said := gateSays(state.Terminated); said != nil {
			return said
		}
		if before == nil && state.Terminated.ExitCode != 0 && (neverRan(state.Terminated) || pod.Status.Phase == corev1.PodFailed) {
			return &sondev1.GateResult{Outcome: sondev1.GateNotStarted}
		}
	case state.Waiting != nil && before == nil && !slices.Contains(gateStarting, state.Waiting.Reason):
		// One that has refused its Pod waits to be started again.
		if said := gateSays(status.LastTerminationState.Terminated); said != nil {
			return said
		}
		if !now.Before(gateLate(capture, pod)) {
			return &sondev1.GateResult{Outcome: sondev1.GateNotStarted}
		}
	}
	return before
}

// neverRan reports whether a container that has ended failed to start (StartError): its start is then the beginning of 1970.
func neverRan(ended *corev1.ContainerStateTerminated) bool { return ended.StartedAt.Unix() <= 0 }

// gateSays is how a gate ended by its own words; nil if it has left none.
func gateSays(ended *corev1.ContainerStateTerminated) *sondev1.GateResult {
	if ended == nil {
		return nil
	}
	how, waited, ok := gateconfig.ParseMessage(ended.Message)
	if !ok {
		return nil
	}
	return &sondev1.GateResult{Outcome: sondev1.GateOutcome(how), WaitedMilliseconds: waited.Milliseconds()}
}

// gateLate is when a gate should have been open, had it started with its Pod.
func gateLate(capture sondev1.Capture, pod *corev1.Pod) time.Time {
	began := pod.CreationTimestamp
	if pod.Status.StartTime != nil {
		began = *pod.Status.StartTime
	}
	return began.Add(gateTimeout(capture))
}

// gateTimeout of a capture that has a gate; the schema has seen to it that it can be read.
func gateTimeout(capture sondev1.Capture) time.Duration {
	timeout, err := duration.Parse(cmp.Or(capture.Common().Gate.Timeout, gateconfig.DefaultTimeout.String()))
	if err != nil {
		return gateconfig.DefaultTimeout
	}
	return timeout
}

// gateAgain is when a gate that seems not to start is to be looked at again; zero if none does.
func gateAgain(capture sondev1.Capture, pod *corev1.Pod, known *sondev1.GateResult, now time.Time) time.Time {
	if known != nil || !gatedBy(capture, pod) {
		return time.Time{}
	}
	for _, s := range pod.Status.InitContainerStatuses {
		if late := gateLate(capture, pod); s.State.Waiting != nil && now.Before(late) {
			return late
		}
	}
	return time.Time{}
}

// replaces reports whether a Pod is to make way for one without a gate: its own cannot start, which everybody can read by
// now, so that no gate is put into the next one; that next one will come; and it may start untraced.
func replaces(capture sondev1.Capture, pod *corev1.Pod, before, now *sondev1.GateResult) bool {
	return now != nil && now.Outcome == sondev1.GateNotStarted && before != nil && before.Outcome == sondev1.GateNotStarted &&
		gatedBy(capture, pod) && capture.Common().Gate.OnTimeout != sondev1.GateFail && !gate.Required(pod) && !gatesStill(capture) &&
		pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil && metav1.GetControllerOfNoCopy(pod) != nil
}

// planGate adds to a verdict how the Pod's gate ended, and to the plan what is to be done about one that cannot start.
func (todo *plan) planGate(capture sondev1.Capture, seen observed, p *podSeen, v *outcome.Verdict) {
	if capture.Common().Gate == nil || p.pod == nil {
		return
	}
	pod := p.pod.Expand()
	v.Entry.Gate = observeGate(capture, pod, v.Entry.Gate, seen.now)
	v.Again = earlier(v.Again, gateAgain(capture, pod, v.Entry.Gate, seen.now))
	// The Pod alone says it.
	todo.leaving = todo.leaving || p.before.Gate == nil && v.Entry.Gate != nil && pod.DeletionTimestamp != nil
	switch {
	case replaces(capture, pod, p.before.Gate, v.Entry.Gate):
		todo.evict = append(todo.evict, p)
		v.Again = earlier(v.Again, seen.now.Add(refusedDelay))
	case p.before.Gate == nil && v.Entry.Gate != nil && v.Entry.Gate.Outcome == sondev1.GateNotStarted:
		v.Again = seen.now // what is to be done about it comes after everybody can read it
	}
}

// gatesStill reports whether the capture's status has new Pods gated.
func gatesStill(capture sondev1.Capture) bool {
	return !apimeta.IsStatusConditionFalse(capture.CaptureStatus().Conditions, sondev1.ConditionGating)
}

// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create

// evict has a Pod replaced by its owner. An eviction is less than a deletion: budgets for disruptions hold it up, but for
// Pods that have not started, as this one.
func (r *Reconciler) evict(ctx context.Context, p *podSeen) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.pod.GetNamespace(), Name: p.pod.GetName()}}
	err := r.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    pod.ObjectMeta,
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.uid}},
	})
	switch {
	case sweep.IsGone(err), apierrors.IsConflict(err), apierrors.IsTooManyRequests(err): // gone by itself, or it is tried again
		return nil
	case err != nil:
		return fmt.Errorf("evict pod %s/%s, whose gate cannot start: %w", pod.Namespace, pod.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Evicted a Pod whose gate cannot start", "Pod", pod.Namespace+"/"+pod.Name)
	return nil
}

// announceGate tells of gates that cannot start, once for each Pod.
func (r *Reconciler) announceGate(before, capture sondev1.Capture) {
	known := map[string]bool{}
	for i := range before.CaptureStatus().Pods {
		e := &before.CaptureStatus().Pods[i]
		known[e.UID] = e.Gate != nil
	}
	told := 0
	for i := range capture.CaptureStatus().Pods {
		e := &capture.CaptureStatus().Pods[i]
		if e.Gate == nil || e.Gate.Outcome != sondev1.GateNotStarted || known[e.UID] || told == maxPodEvents {
			continue
		}
		told++
		then := "it is replaced by one without a gate, if it has an owner that makes a new one; else delete it"
		if gatesStill(capture) {
			then = "it must not start untraced: see its init container " + gateconfig.ContainerName + " for why, or delete the Trace and then the Pod"
		}
		r.Recorder.Eventf(capture, nil, corev1.EventTypeWarning, sondev1.ReasonGateNotStarted, r.Kind.action, "The gate of Pod %s cannot start; %s", e.Name, then)
	}
}

// gatingCondition says whether new Pods of the target wait for their tracer. The webhook goes by it, on every replica.
func gatingCondition(capture sondev1.Capture, seen observed, todo plan) finding {
	status := capture.CaptureStatus()
	if status.Phase.Final() {
		return finding{metav1.ConditionFalse, sondev1.ReasonEnded, "the trace is over"}
	}
	if seen.admission.refused() {
		return finding{metav1.ConditionFalse, seen.admission.reason, seen.admission.message}
	}
	if capture.Common().Stop {
		return finding{metav1.ConditionFalse, sondev1.ReasonStopped, "the trace was stopped"}
	}
	// It stays: the Pods of which it was said are gone, and those that came for them would be next.
	if c := apimeta.FindStatusCondition(status.Conditions, sondev1.ConditionGating); c != nil && c.Reason == sondev1.ReasonGateNotStarted {
		return finding{c.Status, c.Reason, c.Message}
	}
	for i := range todo.entries {
		e := &todo.entries[i]
		switch {
		case e.Gate != nil && e.Gate.Outcome == sondev1.GateNotStarted && capture.Common().Gate.OnTimeout != sondev1.GateFail:
			return finding{metav1.ConditionFalse, sondev1.ReasonGateNotStarted, fmt.Sprintf(
				"the gate of Pod %s could not start, so no further Pod is gated; see the Pod's init container %s for why, and create a new Trace", e.Name, gateconfig.ContainerName)}
		case waits(*e) && e.Reason == sondev1.ReasonQueued:
			return finding{metav1.ConditionFalse, e.Reason, "Pods that wait for a trace that waits itself would wait in vain: " + e.Message}
		}
	}
	if !capture.Common().FollowPods && !todo.start.IsZero() {
		return finding{metav1.ConditionFalse, sondev1.ReasonNotFollowed, "followPods is false: no Pod that joins is traced, so none waits"}
	}
	return finding{metav1.ConditionTrue, sondev1.ReasonGating, fmt.Sprintf(
		"Pods of the target that are made from a few seconds after this on wait for their tracer, for up to %v each", gateTimeout(capture))}
}
