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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/duration"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// gatedBy reports whether a Pod is annotated as gated by this capture. It is a hint: the Pod's creator can write it.
func gatedBy(capture sondev1.Capture, pod *corev1.Pod) bool {
	return capture.Common().Gate != nil && pod != nil && pod.Annotations[sondev1.AnnotationGatedByUID] == string(capture.GetUID())
}

// gateStarting are the waiting reasons of a container that is still starting.
var gateStarting = []string{"", "PodInitializing", "ContainerCreating"}

// observeGate returns how the gate of a Pod ended; nil while unknown. A gate that does not start counts as NotStarted after its
// timeout. A gate that was killed, for example by a reboot, has not ended, because the kubelet restarts it. Only the gate's own
// message replaces a known result. acc is the account of the Pod's probe, nil while unknown.
func observeGate(capture sondev1.Capture, pod *corev1.Pod, acc *account.Account, before *sondev1.GateResult, now time.Time) *sondev1.GateResult {
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
		if result := gateResult(state.Terminated); result != nil {
			return confirmed(result, state.Terminated, acc, before, now)
		}
		if before == nil && state.Terminated.ExitCode != 0 && (neverRan(state.Terminated) || pod.Status.Phase == corev1.PodFailed) {
			return &sondev1.GateResult{Outcome: sondev1.GateNotStarted}
		}
	case state.Waiting != nil && before == nil && !slices.Contains(gateStarting, state.Waiting.Reason):
		// A gate that refused its Pod waits for its restart.
		if last := status.LastTerminationState.Terminated; refused(last) {
			return gateResult(last)
		}
		if !now.Before(gateDeadline(capture, pod)) {
			return &sondev1.GateResult{Outcome: sondev1.GateNotStarted}
		}
	}
	return before
}

// ungated returns Untraced for a Pod that has no gate although it was created while Gating was True: the webhook of Pods fails
// open. A Pod that waits for a node is found long after it was created, when Gating may be False, or True again. If Gating turned
// False and True again before, a Pod that was created meanwhile counts, too. Times are whole seconds, so a Pod of the second in which
// Gating first turned True does not count.
func ungated(capture sondev1.Capture, pod *corev1.Pod) *sondev1.GateResult {
	c, from := gatingOf(capture), capture.CaptureStatus().GatedFrom
	if pod == nil || capture.Common().Gate == nil || c == nil || from == nil || !pod.CreationTimestamp.After(from.Time) ||
		c.Status != metav1.ConditionTrue && pod.CreationTimestamp.After(c.LastTransitionTime.Time) {
		return nil
	}
	isGate := func(s corev1.ContainerStatus) bool { return s.Name == gateconfig.ContainerName }
	if gatedBy(capture, pod) && (pod.Status.Phase != corev1.PodRunning || slices.ContainsFunc(pod.Status.InitContainerStatuses, isGate)) {
		return nil
	}
	return &sondev1.GateResult{Outcome: sondev1.GateUntraced}
}

// startedUntraced are the outcomes of gates after which a Pod starts, and that its tracer did not open.
var startedUntraced = []sondev1.GateOutcome{sondev1.GateUntraced, sondev1.GateOver}

// missStart makes the result of a Pod that has started untraced incomplete.
func missStart(v *outcome.Verdict) {
	if g := v.Entry.Gate; g == nil || !slices.Contains(startedUntraced, g.Outcome) || v.Entry.Phase != sondev1.PhaseCompleted {
		return
	}
	v.Entry.Phase, v.Entry.Reason = sondev1.PhaseIncomplete, sondev1.ReasonStartMissed
	v.Entry.Message = "the Pod was to wait for its tracer, and started untraced: its first events are missing"
	if v.Entry.Gate.Outcome == sondev1.GateOver {
		v.Entry.Message += ". Its gate says that the trace was over: compare the clock of node " + v.Entry.Node
	}
}

// neverRan reports whether a container failed to start (StartError): the kubelet then reports a start in 1970.
func neverRan(ended *corev1.ContainerStateTerminated) bool { return ended.StartedAt.Unix() <= 0 }

// gateResult reads how a gate ended from its exit code, by which the kubelet starts the Pod or does not, and from its own termination
// message. It is nil if the Pod does not start and the gate left no message of its own. A gate that lets the Pod start is taken to
// say that it opened, whatever its message is, unless that says fittingly that the Pod starts untraced.
func gateResult(ended *corev1.ContainerStateTerminated) *sondev1.GateResult {
	if ended == nil {
		return nil
	}
	how, waited, ok := gateconfig.ParseMessage(ended.Message)
	switch fits := ok && int32(how.ExitCode()) == ended.ExitCode; {
	case !fits && ended.ExitCode != 0:
		return nil
	case !fits:
		how = gateconfig.Opened
	}
	return &sondev1.GateResult{Outcome: sondev1.GateOutcome(how), WaitedMilliseconds: waited.Milliseconds()}
}

// refused reports whether a gate ended by its own word without letting the Pod start.
func refused(ended *corev1.ContainerStateTerminated) bool {
	return ended != nil && ended.ExitCode != 0 && gateResult(ended) != nil
}

// gateDeadline is when the gate should have opened if it had started with its Pod.
func gateDeadline(capture sondev1.Capture, pod *corev1.Pod) time.Time {
	start := pod.CreationTimestamp
	if pod.Status.StartTime != nil {
		start = *pod.Status.StartTime
	}
	return start.Add(gateTimeout(capture))
}

// gateTimeout of a capture that has a gate. The schema ensures that it can be parsed.
func gateTimeout(capture sondev1.Capture) time.Duration {
	timeout, err := duration.Parse(cmp.Or(capture.Common().Gate.Timeout, gateconfig.DefaultTimeout.String()))
	if err != nil {
		return gateconfig.DefaultTimeout
	}
	return timeout
}

// gateRecheck is when a gate that does not seem to start must be read again; zero if there is none.
func gateRecheck(capture sondev1.Capture, pod *corev1.Pod, known *sondev1.GateResult, now time.Time) time.Time {
	if known != nil || !gatedBy(capture, pod) {
		return time.Time{}
	}
	for _, s := range pod.Status.InitContainerStatuses {
		if late := gateDeadline(capture, pod); s.State.Waiting != nil && now.Before(late) {
			return late
		}
	}
	if ended := claimsOpened(capture, pod); ended != nil && now.Before(ended.FinishedAt.Add(proofWait)) {
		return now.Add(proofAgain)
	}
	return time.Time{}
}

// mustEvict reports whether a Pod must be replaced by one without a gate. Its gate cannot start, and the status says so already.
// Its owner will create another Pod, which may start untraced.
func mustEvict(capture sondev1.Capture, pod *corev1.Pod, before, now *sondev1.GateResult) bool {
	return now != nil && now.Outcome == sondev1.GateNotStarted && before != nil && before.Outcome == sondev1.GateNotStarted &&
		gatedBy(capture, pod) && capture.Common().Gate.OnTimeout != sondev1.GateFail && !gate.Required(pod) && !gate.Gates(capture.CaptureStatus().Conditions) &&
		pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil && metav1.GetControllerOfNoCopy(pod) != nil
}

// planGate adds to a verdict how the Pod's gate ended, and to the plan the eviction of a Pod whose gate cannot start.
func (planned *plan) planGate(capture sondev1.Capture, observed observation, p *podState, v *outcome.Verdict) {
	if capture.Common().Gate == nil {
		return
	}
	if p.before.Phase == sondev1.PhaseCompleted && p.before.Gate != nil {
		return // a gate that ends now is of a sandbox that was started again after the Pod's trace
	}
	if p.pod == nil {
		v.Entry.Gate = disproved(v.Entry.Gate, p.account())
		return
	}
	pod := p.pod.Expand()
	v.Entry.Gate = observeGate(capture, pod, p.account(), v.Entry.Gate, observed.now)
	if v.Entry.Gate == nil && !p.before.Phase.Final() { // it was judged by what Gating said before: Gating may have turned True again since
		v.Entry.Gate = ungated(capture, pod)
	}
	if p.awaitsGateReport(capture, pod, v, observed.now) {
		job := v.Entry.Job
		v.Entry, v.Again = *p.before.DeepCopy(), earlier(v.Again, observed.now.Add(proofAgain))
		v.Entry.Job, v.Entry.Phase = job, cmp.Or(v.Entry.Phase, sondev1.PhasePending) // before has neither if the status does not list the Pod
		return
	}
	v.Again = earlier(v.Again, gateRecheck(capture, pod, v.Entry.Gate, observed.now))
	// Only the Pod holds the result.
	planned.deleting = planned.deleting || p.before.Gate == nil && v.Entry.Gate != nil && pod.DeletionTimestamp != nil
	switch {
	case mustEvict(capture, pod, p.before.Gate, v.Entry.Gate):
		planned.evict = append(planned.evict, p)
		v.Again = earlier(v.Again, observed.now.Add(refusedDelay))
	case p.before.Gate == nil && v.Entry.Gate != nil && v.Entry.Gate.Outcome == sondev1.GateNotStarted:
		v.Again = observed.now // evict after the status was written
	}
}

// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create

// evict lets the owner replace a Pod. Unlike a deletion, an eviction respects disruption budgets, although these do not protect
// a Pod that has not started.
func (r *Reconciler) evict(ctx context.Context, p *podState) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.pod.GetNamespace(), Name: p.pod.GetName()}}
	err := r.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    pod.ObjectMeta,
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.uid}},
	})
	switch {
	case gone.Is(err), apierrors.IsConflict(err), apierrors.IsTooManyRequests(err): // gone by itself, or retried
		return nil
	case err != nil:
		return fmt.Errorf("evict pod %s/%s, whose gate cannot start: %w", pod.Namespace, pod.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Evicted a Pod whose gate cannot start", "Pod", pod.Namespace+"/"+pod.Name)
	return nil
}

// recordGateEvents records gates that cannot start, once for each Pod.
func (r *Reconciler) recordGateEvents(before, capture sondev1.Capture) {
	known := map[string]bool{}
	for i := range before.CaptureStatus().Pods {
		e := &before.CaptureStatus().Pods[i]
		known[e.UID] = e.Gate != nil
	}
	sent := 0
	for i := range capture.CaptureStatus().Pods {
		e := &capture.CaptureStatus().Pods[i]
		if e.Gate == nil || e.Gate.Outcome != sondev1.GateNotStarted || known[e.UID] || sent == maxPodEvents {
			continue
		}
		sent++
		next := "its owner replaces it by a Pod without a gate; if it has no owner, delete it"
		if gate.Gates(capture.CaptureStatus().Conditions) {
			next = "it must not start untraced: see its init container " + gateconfig.ContainerName + " for why, or delete the Trace and then the Pod"
		}
		r.Recorder.Eventf(capture, nil, corev1.EventTypeWarning, sondev1.ReasonGateNotStarted, r.Kind.action, "The gate of Pod %s cannot start; %s", e.Name, next)
	}
}
