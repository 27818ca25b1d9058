package fluentpvc

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pass"
)

// lostFor is how long a binding whose data is lost is kept, so that people notice.
const lostFor = 24 * time.Hour

// action is the one write, besides the status, of a transition.
type action int

const (
	nothing action = iota
	createClaim
	createJob
	deleteClaim
	deleteBinding
	evictPod
)

// transition is one row of the state machine. The first row of the binding's phase whose condition holds is taken.
type transition struct {
	from sondev1.BindingPhase
	// when says in words when holds is true.
	when  string
	holds func(*observation) bool
	act   action
	// to is the next phase. It equals from if the binding stays, and is empty if the binding is deleted.
	to sondev1.BindingPhase
	// live rows cannot be undone: what they hold by is read from the API server first. So a request that a user has withdrawn does not
	// count, although the cache still has it.
	live bool
}

// transitions is the state machine of a binding. docs/fluentpvc.md shows it.
var transitions = []transition{
	{from: sondev1.BindingPending, when: "discard was requested", holds: (*observation).discard, to: sondev1.BindingDiscarded, live: true},
	{from: sondev1.BindingPending, when: "the Pod has ended, no volume was bound, and no other Pod uses the claim", holds: (*observation).endedEmpty, to: sondev1.BindingDiscarded, live: true},
	{from: sondev1.BindingPending, when: "the claim does not exist", holds: (*observation).claimMissing, act: createClaim, to: sondev1.BindingReady},
	{from: sondev1.BindingPending, when: "the claim exists", holds: always, to: sondev1.BindingReady},

	{from: sondev1.BindingReady, when: "the Pod has ended, no volume was bound, and no other Pod uses the claim", holds: (*observation).endedUnbound, to: sondev1.BindingDiscarded, live: true},
	{from: sondev1.BindingReady, when: "the claim or its volume is gone", holds: (*observation).claimLost, to: sondev1.BindingUnknown, live: true},
	{from: sondev1.BindingReady, when: "the Pod has ended", holds: (*observation).podEnded, to: sondev1.BindingOutOfUse, live: true},
	{
		from: sondev1.BindingReady, when: "the sidecar has ended or restarted while another container runs", holds: (*observation).sidecarUnhealthy,
		act: evictPod, to: sondev1.BindingReady,
	},

	{from: sondev1.BindingOutOfUse, when: "discard was requested", holds: (*observation).discard, to: sondev1.BindingDiscarded, live: true},
	{from: sondev1.BindingOutOfUse, when: "the claim or its volume is gone", holds: (*observation).claimLost, to: sondev1.BindingUnknown, live: true},
	{
		from: sondev1.BindingOutOfUse, when: "no Pod uses the claim, and the backoff is over", holds: (*observation).mayFinalize,
		act: createJob, to: sondev1.BindingFinalizerJobApplied, live: true,
	},

	{from: sondev1.BindingFinalizerJobApplied, when: "discard was requested", holds: (*observation).discard, to: sondev1.BindingDiscarded, live: true},
	{from: sondev1.BindingFinalizerJobApplied, when: "the Job has succeeded", holds: jobHas(batchv1.JobComplete), to: sondev1.BindingFinalizerJobSucceeded},
	{from: sondev1.BindingFinalizerJobApplied, when: "the last attempt has failed", holds: (*observation).exhausted, to: sondev1.BindingFinalizerJobFailed},
	{from: sondev1.BindingFinalizerJobApplied, when: "an attempt has failed", holds: jobHas(batchv1.JobFailed), to: sondev1.BindingOutOfUse},
	{from: sondev1.BindingFinalizerJobApplied, when: "the claim or its volume is gone", holds: (*observation).claimLost, to: sondev1.BindingUnknown, live: true},
	{from: sondev1.BindingFinalizerJobApplied, when: "the Job was deleted", holds: (*observation).jobMissing, to: sondev1.BindingOutOfUse, live: true},

	{from: sondev1.BindingFinalizerJobSucceeded, when: "the claim is gone", holds: (*observation).claimMissing, act: deleteBinding, live: true},
	{
		from: sondev1.BindingFinalizerJobSucceeded, when: "the retention is over, or discard was requested", holds: (*observation).retained,
		act: deleteClaim, to: sondev1.BindingFinalizerJobSucceeded,
	},

	{
		from: sondev1.BindingFinalizerJobFailed, when: "discard was requested, or failedRetention is over and retry was not requested", holds: (*observation).givenUp,
		to: sondev1.BindingDiscarded, live: true,
	},
	{from: sondev1.BindingFinalizerJobFailed, when: "the claim or its volume is gone", holds: (*observation).claimLost, to: sondev1.BindingUnknown, live: true},
	{from: sondev1.BindingFinalizerJobFailed, when: "retry was requested", holds: (*observation).retry, to: sondev1.BindingOutOfUse},
	{from: sondev1.BindingFinalizerJobFailed, when: "the Job was deleted", holds: (*observation).jobMissing, to: sondev1.BindingOutOfUse, live: true},

	{from: sondev1.BindingDiscarded, when: "the claim is gone", holds: (*observation).claimMissing, act: deleteBinding, live: true},
	{from: sondev1.BindingDiscarded, when: "the claim exists", holds: always, act: deleteClaim, to: sondev1.BindingDiscarded},

	{from: sondev1.BindingUnknown, when: "discard was requested", holds: (*observation).discard, to: sondev1.BindingDiscarded, live: true},
	{from: sondev1.BindingUnknown, when: "the claim is gone", holds: (*observation).claimMissing, to: sondev1.BindingDataLost, live: true},
	{from: sondev1.BindingUnknown, when: "the claim has its volume, and a Job that has not failed", holds: (*observation).foundJob, to: sondev1.BindingFinalizerJobApplied, live: true},
	{from: sondev1.BindingUnknown, when: "the claim has its volume, and the Pod has ended", holds: (*observation).foundEnded, to: sondev1.BindingOutOfUse, live: true},
	{from: sondev1.BindingUnknown, when: "the claim has its volume", holds: (*observation).found, to: sondev1.BindingReady},

	{from: sondev1.BindingDataLost, when: "24 hours have passed, or discard was requested", holds: (*observation).mourned, act: deleteBinding, live: true},
}

func always(*observation) bool { return true }

// next returns the row that applies, and false if the binding stays as it is.
func next(o *observation) (transition, bool) {
	for _, t := range transitions {
		if t.from == phaseOf(o.binding) && t.holds(o) {
			return t, true
		}
	}
	return transition{}, false
}

// phaseOf returns the phase of a binding. A new one has no status.
func phaseOf(b *sondev1.FluentPVCBinding) sondev1.BindingPhase {
	if b.Status.Phase == "" {
		return sondev1.BindingPending
	}
	return b.Status.Phase
}

// The conditions of the rows.

func (o *observation) discard() bool {
	_, requested := o.binding.Annotations[sondev1.AnnotationDiscard]
	return requested
}

func (o *observation) retry() bool {
	request := pass.RetryRequested(o.binding.Annotations)
	return request != "" && request != o.binding.Status.Retried
}

func (o *observation) podEnded() bool { return o.pod == nil || ended(o.pod) }

// ended reports whether no container of a Pod runs any more.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (o *observation) claimMissing() bool { return o.claim == nil }

func (o *observation) claimLost() bool {
	return o.claim == nil || o.claim.Status.Phase == corev1.ClaimLost
}

func (o *observation) found() bool { return !o.claimLost() }

// foundJob: the Job goes on with a volume that is back, so it must not get a second one beside it.
func (o *observation) foundJob() bool {
	return o.found() && o.job != nil && !jobHas(batchv1.JobFailed)(o)
}

func (o *observation) foundEnded() bool { return o.found() && o.podEnded() }

// endedEmpty also holds without a claim. A new binding may have a claim with data: someone has deleted the earlier binding, or its
// status was not written before the Pod ended.
func (o *observation) endedEmpty() bool {
	return o.podEnded() && o.claim == nil || o.endedUnbound()
}

// endedUnbound: a Pod that was copied before its claim existed has the same claim, and may still write into it.
func (o *observation) endedUnbound() bool {
	return o.podEnded() && len(o.users) == 0 && o.claim != nil && o.claim.Spec.VolumeName == "" && o.claim.Status.Phase != corev1.ClaimBound
}

// sidecarUnhealthy reports whether the Pod is to be evicted.
func (o *observation) sidecarUnhealthy() bool {
	t := &o.binding.Spec.Template
	evict := t.DeletePodIfSidecarContainerTerminationDetected
	return (evict == nil || *evict) && o.pod != nil && o.pod.DeletionTimestamp.IsZero() && sidecarEnded(o.pod, t.SidecarContainerTemplate.Name)
}

// sidecarEnded reports whether the sidecar has ended or restarted while another container runs. A sidecar that ends after all
// others is healthy: in a Job's Pod it has to. A Native sidecar is an init container, which Kubernetes always restarts. Init
// containers do not count as others: native sidecars of other systems outlive an ordinary one. A sidecar that restarted before all
// others started is healthy, too: a Native one may need a second start, and after a restart of the node all containers have restarted.
// Runtimes that forget their containers then, like CRI-O, do not say when they ended.
func sidecarEnded(pod *corev1.Pod, sidecar string) bool {
	s := &pod.Status
	var since *metav1.Time  // when the first of the others that run has started
	othersRestarted := true // each of the others that run
	for i := range s.ContainerStatuses {
		c := &s.ContainerStatuses[i]
		runs := c.State.Running
		if c.Name == sidecar || runs == nil {
			continue
		}
		othersRestarted = othersRestarted && c.RestartCount > 0
		if since == nil || runs.StartedAt.Before(since) {
			since = &runs.StartedAt
		}
	}
	down := func(c corev1.ContainerStatus) bool {
		if c.Name != sidecar || c.State.Terminated != nil || c.RestartCount == 0 {
			return c.Name == sidecar && c.State.Terminated != nil
		}
		if last := c.LastTerminationState.Terminated; last != nil && !last.FinishedAt.IsZero() {
			return since.Before(&last.FinishedAt)
		}
		return !othersRestarted
	}
	return since != nil && (slices.ContainsFunc(s.ContainerStatuses, down) || slices.ContainsFunc(s.InitContainerStatuses, down))
}

func (o *observation) mayFinalize() bool { return len(o.users) == 0 && o.wait() <= 0 }

// jobHas returns a condition that holds if the Job of the current attempt has ended so.
func jobHas(condition batchv1.JobConditionType) func(*observation) bool {
	return func(o *observation) bool {
		if o.job == nil {
			return false
		}
		for _, c := range o.job.Status.Conditions {
			if c.Type == condition && c.Status == corev1.ConditionTrue {
				return true
			}
		}
		return false
	}
}

func (o *observation) exhausted() bool {
	return jobHas(batchv1.JobFailed)(o) && o.binding.Status.Failures+1 >= o.policy().attempts
}

func (o *observation) jobMissing() bool { return o.job == nil }

func (o *observation) retained() bool { return o.discard() || o.wait() <= 0 }

// givenUp: a retry may have been requested in time, while the operator was paused or down.
func (o *observation) givenUp() bool {
	return o.discard() || o.policy().failedRetention > 0 && o.wait() <= 0 && !o.retry()
}

func (o *observation) mourned() bool { return o.discard() || o.wait() <= 0 }

// wait returns how long the binding still stays in its phase if nothing happens. It is 0 or less if a time is over, or if no time
// ends the phase.
func (o *observation) wait() time.Duration {
	var after time.Duration
	p := o.policy()
	switch phaseOf(o.binding) {
	case sondev1.BindingOutOfUse:
		after = p.backoff(o.binding.Status.Failures)
	case sondev1.BindingFinalizerJobSucceeded:
		after = p.retention
	case sondev1.BindingFinalizerJobFailed:
		after = p.failedRetention
	case sondev1.BindingDataLost:
		after = lostFor
	default:
	}
	if after == 0 || o.binding.Status.PhaseTime == nil {
		return 0
	}
	return o.binding.Status.PhaseTime.Add(after).Sub(o.now)
}
