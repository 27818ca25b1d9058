package fluentpvc

import (
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/memapi"
)

// truth is what really happened to claims and bindings, whatever the manager knows of it.
type truth struct {
	// used claims have data of a Pod. processed ones were read by a finalizer Job that succeeded.
	used, processed map[types.UID]bool
	// discarded bindings have, or had, the user's annotation.
	discarded map[types.UID]bool
	// failed counts the failed Jobs of a binding since the last retry, and failedAt says when the last one failed.
	failed   map[types.UID]int32
	failedAt map[types.UID]time.Time
	// bounded says that a FluentPVC had a low maxBindings: a Pod may have been refused for good.
	bounded bool
}

func newTruth() truth {
	return truth{
		used: map[types.UID]bool{}, processed: map[types.UID]bool{}, discarded: map[types.UID]bool{}, failed: map[types.UID]int32{},
		failedAt: map[types.UID]time.Time{},
	}
}

func (t *truth) jobEnded(s *schedule, job *batchv1.Job, succeeded bool) {
	b := types.UID(job.Labels[sondev1.LabelUID])
	if !succeeded {
		t.failed[b]++
		t.failedAt[b] = s.clock.Now()
		return
	}
	if c := s.claimOf(claimsOf(&corev1.Pod{Spec: job.Spec.Template.Spec})[0]); c != nil {
		t.processed[c.UID] = true
	}
}

// afterWrite checks the invariants after a manager's write.
func (s *schedule) afterWrite(m *replica, verb string, k memapi.Key, err error) {
	s.writes++
	switch {
	case m.began.paused:
		s.Fail("%s %s %s, and its cache had the pause when the pass began", m, verb, k)
		return
	case !s.disturbed() && s.repeats(verb, k, err):
		s.Fail("%s repeats a write, because its cache is behind: %s %s: %v", m, verb, k, err)
		return
	case m.began.ending && m.ending(k.Namespace) && verb == "create" && k.Kind != KindBinding: // a binding has no live check of its namespace; the API server refuses it
		s.Fail("%s creates %s in a namespace that is being deleted", m, k)
		return
	case err == nil && verb == "patch status of":
		if b := s.bindingOf(k.Name); b != nil {
			s.Trace("%s is %s, attempt %d, %d failures", k.Name, b.Status.Phase, b.Status.Attempt, b.Status.Failures)
		}
		return
	case err != nil || verb != "create":
		return
	}
	there := s.api.Objects[k]
	s.follow(there)
	if job, ok := there.(*batchv1.Job); ok {
		s.checkJob(m, job)
	}
}

// disturbed reports whether something may happen between a pass's read and its write, or a manager may die or lose the answer to a write.
func (s *schedule) disturbed() bool { return s.faults > 0 || s.pauses > 0 }

// repeats reports whether the API server's answer to a write says that the manager has made it before.
func (s *schedule) repeats(verb string, k memapi.Key, err error) bool {
	switch {
	case verb == "evict":
		return false
	case apierrors.IsAlreadyExists(err):
		there := s.api.Objects[k]
		b := s.bindingOf(strings.TrimRight(k.Name, "0123456789-"))
		switch there.(type) {
		case *batchv1.Job:
			return b != nil && metav1.IsControlledBy(there, b)
		case *corev1.PersistentVolumeClaim:
			return b != nil && there.GetLabels()[sondev1.LabelUID] == string(b.UID)
		}
		return true
	}
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err)
}

// checkJob checks that a finalizer Job has the claim for itself. A manager that is no longer the leader, but does not know that
// yet, is excused: it may create a Job whose name was taken and is free again.
//
// The manager reads the binding's Pod and the Pods of earlier Jobs from the API server, so none of them may run. It reads other Pods
// from the cache, because the API server has no index of claims: a Pod that was created a moment ago may run beside the Job.
func (s *schedule) checkJob(m *replica, job *batchv1.Job) {
	name := claimsOf(&corev1.Pod{Spec: job.Spec.Template.Spec})[0]
	if c := s.claimOf(name); c != nil && c.Labels[sondev1.LabelKind] != KindBinding {
		s.Fail("%s is for a claim of someone else", job.Name)
	}
	if m != s.leader {
		return
	}
	for _, other := range memapi.Of[*batchv1.Job](s.api.Objects, "Job") {
		if other.UID != job.UID && other.Labels[sondev1.LabelUID] == job.Labels[sondev1.LabelUID] && !jobEnded(other) {
			s.Fail("%s is created, and %s has not ended", job.Name, other.Name)
		}
	}
	for _, pod := range s.podsWith(name) {
		if ended(pod) {
			continue
		}
		knows := slices.ContainsFunc(m.began.users, func(p corev1.Pod) bool { return p.UID == pod.UID && !ended(&p) })
		mine := string(pod.UID) == job.Labels[sondev1.LabelTargetPodUID] || pod.Labels[sondev1.LabelUID] == job.Labels[sondev1.LabelUID]
		if knows || mine {
			s.Fail("%s is created, and Pod %s uses the claim", job.Name, pod.Name)
		}
	}
}

// checkDeleted checks that the manager deletes nothing that is still needed.
func (s *schedule) checkDeleted(o client.Object) {
	if !s.disturbed() && !o.GetDeletionTimestamp().IsZero() {
		s.Fail("the manager deletes %s again", s.api.KeyOf(o))
		return
	}
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		s.checkDeletedClaim(o)
	case *sondev1.FluentPVCBinding:
		if c := s.claimOf(o.Name); c != nil && owns(o, c) && o.Status.Phase != sondev1.BindingDataLost {
			s.Fail("the binding %s is deleted, and its claim exists", o.Name)
		}
	}
}

func (s *schedule) checkDeletedClaim(c *corev1.PersistentVolumeClaim) {
	b, t := s.bindingOf(c.Name), &s.truth
	switch {
	case c.Labels[sondev1.LabelKind] != KindBinding:
		s.Fail("the manager deletes %s, a claim of someone else", c.Name)
		return
	case t.processed[c.UID], t.discarded[types.UID(c.Labels[sondev1.LabelUID])], b != nil && t.discarded[b.UID]:
		return
	case b == nil: // someone deleted it by force a moment ago
		if t.used[c.UID] {
			s.Fail("claim %s has data, and is deleted without a binding", c.Name)
		}
		return
	}
	for _, pod := range s.podsWith(c.Name) {
		if string(pod.UID) == b.Spec.Pod.UID && !ended(pod) {
			s.Fail("claim %s is deleted, and its Pod has not ended", c.Name)
		}
	}
	p := (&observation{binding: b}).policy()
	running := slices.ContainsFunc(memapi.Of[*batchv1.Job](s.api.Objects, "Job"), func(j *batchv1.Job) bool {
		return metav1.IsControlledBy(j, b) && !jobEnded(j)
	})
	// Times in the status are whole seconds.
	kept := t.failed[b.UID] >= p.attempts && p.failedRetention > 0 && !running && !s.clock.Now().Before(t.failedAt[b.UID].Add(p.failedRetention-time.Second))
	if t.used[c.UID] && !kept {
		s.Fail("claim %s has data, and is deleted before it was processed", c.Name)
	}
}

// checkEnd checks the state a day after the last fault.
func (s *schedule) checkEnd() {
	s.Steps++
	m := s.leader
	before := s.writes
	m.catchUp(s.clock.Now())
	for _, b := range memapi.Of[*sondev1.FluentPVCBinding](s.api.Objects, KindBinding) {
		status := b.Status.DeepCopy()
		m.reconcile(client.ObjectKeyFromObject(b))
		if now := s.bindingOf(b.Name); now == nil || !equality.Semantic.DeepEqual(*status, now.Status) {
			s.Fail("a pass over binding %s in an unchanged world changes it: %s", b.Name, cmp.Diff(b, now))
			return
		}
		s.checkBinding(b)
	}
	// A refused write is tried again in each pass.
	if n := s.writes - before; n > len(memapi.Of[client.Object](s.api.Objects, KindBinding)) {
		s.Fail("passes over an unchanged world write %d times", n)
	}
	// A claim whose binding was deleted by force waits for its FluentPVC, and for the end of its Pod if there are too many bindings.
	defined := s.api.Objects[memapi.KeyFor("FluentPVC", "", "logs")] != nil
	for _, c := range memapi.Of[*corev1.PersistentVolumeClaim](s.api.Objects, "PersistentVolumeClaim") {
		waits := !defined || s.truth.bounded && slices.ContainsFunc(s.podsWith(c.Name), func(p *corev1.Pod) bool { return !ended(p) })
		if c.Labels[sondev1.LabelKind] == KindBinding && s.bindingOf(c.Name) == nil && !waits && c.DeletionTimestamp.IsZero() {
			s.Fail("a day later, claim %s has no binding", c.Name)
		}
	}
	for _, j := range memapi.Of[*batchv1.Job](s.api.Objects, "Job") {
		if s.orphaned(j) {
			s.Fail("a day later, Job %s has no binding", j.Name)
		}
	}
	for _, p := range memapi.Of[*corev1.Pod](s.api.Objects, "Pod") {
		s.checkPodEnd(p)
	}
}

// checkPodEnd checks that each Pod that has not ended, and names a FluentPVC that exists, has a binding.
func (s *schedule) checkPodEnd(p *corev1.Pod) {
	if p.Annotations[sondev1.AnnotationClaim] == "" || ended(p) || s.truth.bounded || s.api.Objects[memapi.KeyFor("FluentPVC", "", "logs")] == nil {
		return
	}
	if name := claimsOf(p)[0]; s.bindingOf(name) == nil {
		s.Fail("a day later, Pod %s waits, and has no binding", p.Name)
	}
}

// checkBinding checks that a binding has reached an end, or says what it waits for.
func (s *schedule) checkBinding(b *sondev1.FluentPVCBinding) {
	var pod *corev1.Pod
	users := false
	for _, p := range s.podsWith(b.Name) {
		if string(p.UID) == b.Spec.Pod.UID {
			pod = p
		} else if !ended(p) {
			users = true
		}
	}
	c := s.claimOf(b.Name)
	reason := func(kind string) string {
		if c := apimeta.FindStatusCondition(b.Status.Conditions, kind); c != nil {
			return c.Reason
		}
		return ""
	}
	claimReason, finalized := reason(sondev1.ConditionClaimCreated), reason(sondev1.ConditionFinalized)
	terminating := c != nil && !c.DeletionTimestamp.IsZero() && claimReason == sondev1.ReasonClaimDeleted
	forbidden := func(reason string) bool { return s.forbidden && reason == sondev1.ReasonNotPermitted }
	ok := false
	switch b.Status.Phase {
	case sondev1.BindingPending:
		foreign := c != nil && !owns(b, c) && claimReason == sondev1.ReasonClaimConflict
		ok = pod != nil && (forbidden(claimReason) || s.full && claimReason == sondev1.ReasonClaimRefused || foreign)
	case sondev1.BindingReady:
		ok = pod != nil && !ended(pod)
		if ok && (&observation{binding: b, pod: pod}).sidecarUnhealthy() {
			ok = s.budget && reason(sondev1.ConditionSidecarHealthy) == sondev1.ReasonEvictionBlocked
		}
	case sondev1.BindingOutOfUse:
		ok = users && finalized == sondev1.ReasonClaimInUse || forbidden(finalized) || s.full && finalized == sondev1.ReasonFinalizerRefused
	case sondev1.BindingFinalizerJobApplied:
		ok = terminating // no Pod can start with the claim, and Kubernetes keeps it for the binding's Pod
	case sondev1.BindingFinalizerJobSucceeded, sondev1.BindingDiscarded:
		ok = terminating || forbidden(claimReason)
	case sondev1.BindingFinalizerJobFailed:
		ok = finalized == sondev1.ReasonAttemptsExhausted && (&observation{binding: b}).policy().failedRetention == 0
	case sondev1.BindingUnknown:
		ok = c != nil && c.Status.Phase == corev1.ClaimLost && finalized == sondev1.ReasonClaimLost
	default:
	}
	if !ok {
		s.Fail("a day later, binding %s is %s: %+v; claim exists %v, its Pod exists %v, others use it %v", b.Name, b.Status.Phase, b.Status.Conditions, c != nil, pod != nil, users)
	}
}
