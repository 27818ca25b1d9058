package fluentpvc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/eventlimit"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// maxNote in bytes bounds messages, which become notes of Events.
const maxNote = eventlimit.MaxNote

// again returns when the next pass is due without an event; 0 means never.
func (d result) again(o *observation) time.Duration {
	switch {
	case o.namespaceEnding:
		return endingDelay
	case d.tried == evictPod:
		if soon, ok := errors.AsType[*tooSoonError](d.refused); ok {
			return max(soon.due.Sub(o.now), 0) + time.Second
		}
		return blockedDelay(o)
	case d.refused != nil:
		return d.refusedDelay(o)
	case d.behind:
		return behindDelay
	default:
		return max(o.wait(), 0)
	}
}

// refusedDelay is a fifth of the time for which the write has been refused, so that the delays grow. A creation is tried from the beginning
// of the phase on, a deletion later.
func (d result) refusedDelay(o *observation) time.Duration {
	begin := o.binding.Status.PhaseTime
	if c := apimeta.FindStatusCondition(o.binding.Status.Conditions, sondev1.ConditionClaimCreated); d.tried == deleteClaim && c != nil {
		begin = &c.LastTransitionTime
	}
	return min(max(o.now.Sub(begin.Time)/5, minRefusedDelay), maxRefusedDelay)
}

// blockedDelay is how long the operator waits before it tries a refused eviction again: a fifth of the time for which the sidecar has been
// down. It grows because a user can have any number of Pods whose evictions are refused.
func blockedDelay(o *observation) time.Duration {
	down := time.Duration(0)
	if c := apimeta.FindStatusCondition(o.binding.Status.Conditions, sondev1.ConditionSidecarHealthy); c != nil {
		down = o.now.Sub(c.LastTransitionTime.Time)
	}
	return min(max(down/5, minBlockedDelay), maxBlockedDelay)
}

// report writes every condition.
func report(o *observation, d result) {
	b := o.binding
	b.Status.Phase = phaseOf(b)
	if b.Status.PhaseTime == nil {
		b.Status.PhaseTime = new(metav1.NewTime(o.now.Truncate(time.Second)))
	}
	for _, c := range []metav1.Condition{claimCondition(o, d), sidecarCondition(o, d), finalizedCondition(o, d)} {
		c.ObservedGeneration, c.LastTransitionTime = b.Generation, metav1.NewTime(o.now.Truncate(time.Second))
		c.Message = text.OneLine(c.Message, maxNote)
		apimeta.SetStatusCondition(&b.Status.Conditions, c)
	}
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func claimCondition(o *observation, d result) metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(sondev1.ConditionClaimCreated, status, reason, message)
	}
	if d.tried == deleteClaim {
		return is(metav1.ConditionFalse, d.reason(), "the claim and its Jobs cannot be deleted: "+d.explain(o))
	}
	if o.claimEnding() {
		message := "the claim is being deleted"
		switch {
		case o.pod != nil:
			message += "; Kubernetes keeps it until Pod " + o.pod.Name + ", which has ended, is deleted"
		case len(o.keepers()) > 0:
			message += "; Kubernetes keeps it while Pods use it: " + strings.Join(o.keepers(), ", ")
		}
		return is(metav1.ConditionFalse, sondev1.ReasonClaimDeleted, message)
	}
	switch phaseOf(o.binding) {
	case sondev1.BindingPending:
		switch {
		case o.namespaceEnding:
			return is(metav1.ConditionFalse, sondev1.ReasonNamespaceEnding, "the namespace is being deleted")
		case d.refused != nil:
			return is(metav1.ConditionFalse, d.reason(), d.explain(o))
		default:
			return is(metav1.ConditionFalse, sondev1.ReasonClaimPending, "the claim does not exist yet")
		}
	case sondev1.BindingUnknown:
		return is(metav1.ConditionFalse, sondev1.ReasonClaimLost, "the volume of the claim is gone: restore it, or give the data up with "+discardCommand(o))
	case sondev1.BindingDataLost:
		return is(metav1.ConditionFalse, sondev1.ReasonClaimLost, "the claim was deleted before its data was processed: the binding is deleted after 24 hours")
	case sondev1.BindingDiscarded:
		return is(metav1.ConditionTrue, sondev1.ReasonDiscarded, "the claim is being deleted")
	default:
		return is(metav1.ConditionTrue, sondev1.ReasonClaimCreated, "the claim exists")
	}
}

// claimEnding reports whether the claim is being deleted. The next pass deletes the claim of a Job that has succeeded. The status says so
// before: it is not written again for that.
func (o *observation) claimEnding() bool {
	return o.claim != nil && (!o.claim.DeletionTimestamp.IsZero() || phaseOf(o.binding) == sondev1.BindingFinalizerJobSucceeded && o.retained())
}

// keepers returns the Pods that keep a claim that is deleted. When a Job has succeeded, its Pod has ended, although the cache may not have
// that yet: a message that named it would be written, and written again.
func (o *observation) keepers() []string {
	if phaseOf(o.binding) != sondev1.BindingFinalizerJobSucceeded {
		return o.users
	}
	job := jobName(o.binding, o.binding.Status.Attempt)
	return slices.DeleteFunc(slices.Clone(o.users), func(pod string) bool { return strings.HasPrefix(pod, job[:min(len(job), maxJobInPod)]) })
}

// maxJobInPod is how much of a Job's name begins the names of its Pods, whose last characters are random.
const maxJobInPod = 57

func sidecarCondition(o *observation, d result) metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(sondev1.ConditionSidecarHealthy, status, reason, message)
	}
	sidecar := o.binding.Spec.Template.SidecarContainerTemplate.Name
	switch {
	case o.podEnded():
		return is(metav1.ConditionTrue, sondev1.ReasonPodEnded, "the Pod has ended")
	case !sidecarEnded(o.pod, sidecar):
		return is(metav1.ConditionTrue, sondev1.ReasonPodRunning, "no container has outlived the sidecar")
	case d.tried == evictPod:
		return is(metav1.ConditionFalse, sondev1.ReasonEvictionBlocked, "container "+sidecar+" has ended or restarted, and the Pod cannot be evicted yet: "+d.refused.Error())
	case !o.sidecarUnhealthy() && o.pod.DeletionTimestamp.IsZero():
		return is(metav1.ConditionFalse, sondev1.ReasonSidecarUnsupervised,
			"container "+sidecar+" has ended or restarted; the Pod stays, because deletePodIfSidecarContainerTerminationDetected is false")
	default:
		return is(metav1.ConditionFalse, sondev1.ReasonSidecarEnded, "container "+sidecar+" has ended or restarted while another container ran: the Pod is evicted")
	}
}

func finalizedCondition(o *observation, d result) metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(sondev1.ConditionFinalized, status, reason, message)
	}
	s := &o.binding.Status
	job := jobName(o.binding, max(s.Attempt, 1))
	switch phaseOf(o.binding) {
	case sondev1.BindingOutOfUse:
		switch {
		case o.namespaceEnding:
			return is(metav1.ConditionFalse, sondev1.ReasonNamespaceEnding, "the namespace is being deleted")
		case len(o.users) > 0:
			return is(metav1.ConditionFalse, sondev1.ReasonClaimInUse, "other Pods use the claim: "+strings.Join(o.users, ", "))
		case d.refused != nil:
			return is(metav1.ConditionFalse, d.reason(), d.explain(o))
		case s.Failures > 0:
			return is(metav1.ConditionFalse, sondev1.ReasonJobFailed, fmt.Sprintf("Job %s has failed, the next attempt follows: kubectl logs -n %s job/%s", job, o.binding.Namespace, job))
		}
		return is(metav1.ConditionFalse, sondev1.ReasonPodEnded, "the Pod has ended, and a Job follows")
	case sondev1.BindingFinalizerJobApplied:
		return is(metav1.ConditionFalse, sondev1.ReasonJobRunning, "Job "+job+" processes the data")
	case sondev1.BindingFinalizerJobSucceeded:
		return is(metav1.ConditionTrue, sondev1.ReasonJobSucceeded, "Job "+job+" has succeeded")
	case sondev1.BindingFinalizerJobFailed:
		return is(metav1.ConditionFalse, sondev1.ReasonAttemptsExhausted, fmt.Sprintf(
			"%d finalizer Jobs have failed, the last is %s: read its log, then repeat it with \"kubectl sonde fluentpvc retry %s -n %s\", or give the data up with %s",
			max(s.Failures, 1), job, o.binding.Name, o.binding.Namespace, discardCommand(o)))
	case sondev1.BindingDiscarded:
		return is(metav1.ConditionFalse, sondev1.ReasonDiscarded, "the data is given up, or there was none")
	case sondev1.BindingUnknown, sondev1.BindingDataLost:
		return is(metav1.ConditionFalse, sondev1.ReasonClaimLost, "the data cannot be read")
	default:
		return is(metav1.ConditionFalse, sondev1.ReasonPodRunning, "the Pod has not ended")
	}
}

func discardCommand(o *observation) string {
	return fmt.Sprintf("\"kubectl sonde fluentpvc discard %s -n %s\"", o.binding.Name, o.binding.Namespace)
}

// reason of the write that was refused.
func (d result) reason() string {
	switch {
	case d.tried == evictPod:
		return sondev1.ReasonEvictionBlocked
	case d.notPermitted:
		return sondev1.ReasonNotPermitted
	case d.tried != createClaim:
		return sondev1.ReasonFinalizerRefused
	case errors.Is(d.refused, errClaimTaken):
		return sondev1.ReasonClaimConflict
	default:
		return sondev1.ReasonClaimRefused
	}
}

// explain says what to do about a refusal.
func (d result) explain(o *observation) string {
	if d.notPermitted {
		return fmt.Sprintf("the operator may not create claims and Jobs here: an admin of the namespace runs \"kubectl sonde fluentpvc allow -n %s\"", o.binding.Namespace)
	}
	return d.refused.Error()
}

// recordEvents records a new phase and a refused write on the binding, and, while the Pod waits, on the Pod and its controller. It
// runs after the status was written, so that no later pass records the same change again.
func (r *Reconciler) recordEvents(before *sondev1.FluentPVCBinding, o *observation, d result) {
	b := o.binding
	if before.Status.Phase != b.Status.Phase {
		switch b.Status.Phase {
		case sondev1.BindingFinalizerJobFailed, sondev1.BindingUnknown, sondev1.BindingDataLost:
			c := cmp.Or(apimeta.FindStatusCondition(b.Status.Conditions, sondev1.ConditionFinalized), &metav1.Condition{})
			r.Recorder.Eventf(b, nil, corev1.EventTypeWarning, string(b.Status.Phase), "Follow", "%s", c.Message)
		default: // the status says it; an Event for each phase would be a third of all writes
		}
	}
	if d.refused == nil {
		return
	}
	reason := d.reason()
	note := text.OneLine(d.explain(o), maxNote)
	r.Recorder.Eventf(b, nil, corev1.EventTypeWarning, reason, "Follow", "%s", note)
	if d.tried != createClaim || o.pod == nil {
		return
	}
	r.Recorder.Eventf(o.pod, b, corev1.EventTypeWarning, reason, "CreateClaim", "%s", note)
	if owner := metav1.GetControllerOf(o.pod); owner != nil {
		r.Recorder.Eventf(&corev1.ObjectReference{
			APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: o.pod.Namespace, Name: owner.Name, UID: owner.UID,
		}, o.pod, corev1.EventTypeWarning, reason, "CreateClaim", "%s", note)
	}
}
