package fluentpvc

import (
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/claim"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
	"github.com/sonde-operator/sonde/test/memapi"
)

// pvcProtection keeps a claim while a Pod with a node uses it, also one that has ended.
const pvcProtection = "kubernetes.io/pvc-protection"

// actor is what the cluster does with one object: scheduler and kubelet with a Pod, provisioner and PVC protection with a claim,
// Job controller and garbage collector with a Job, the namespace controller with a namespace.
type actor struct {
	key memapi.Key
	uid types.UID
	// next is when it may act again.
	next time.Time

	// The plan of a Pod: how it ends, whether its sidecar ends before, whether it ends and is deleted at all.
	fails, sidecarEnds, runsForEver, stays bool
	// retries is how many more Pods a Job creates after failed ones.
	retries int
}

// follow starts the actor of a new object.
func (s *schedule) follow(o client.Object) {
	a := &actor{key: s.api.KeyOf(o), uid: o.GetUID(), next: s.clock.Now()}
	switch o := o.(type) {
	case *corev1.Pod:
		a.next = s.within(5 * time.Second)
		a.fails = s.rand.IntN(3) == 0
		if metav1.GetControllerOf(o) == nil {
			a.sidecarEnds, a.runsForEver, a.stays = s.rand.IntN(4) == 0, s.rand.IntN(4) == 0, s.rand.IntN(4) == 0
		}
	case *batchv1.Job:
		a.next, a.retries = s.within(3*time.Second), s.rand.IntN(2)
	case *corev1.PersistentVolumeClaim:
		a.next = s.within(3 * time.Second)
	case *corev1.Namespace:
	default:
		return
	}
	s.actors[a.uid] = a
	s.order = append(s.order, a.uid)
}

// play lets the cluster take one step for an object, if it is time.
func (s *schedule) play(a *actor) {
	there := s.api.Objects[a.key]
	if there == nil || there.GetUID() != a.uid {
		delete(s.actors, a.uid)
		s.order = slices.DeleteFunc(s.order, func(u types.UID) bool { return u == a.uid })
		return
	}
	if s.clock.Now().Before(a.next) {
		return
	}
	switch o := there.(type) {
	case *corev1.Pod:
		s.playPod(a, o)
	case *corev1.PersistentVolumeClaim:
		s.playClaim(o)
	case *batchv1.Job:
		s.playJob(a, o)
	case *corev1.Namespace:
		s.playNamespace(o)
	}
}

// webhook returns what the webhook makes of a new Pod that names the FluentPVC.
func (s *schedule) webhook(pod *corev1.Pod, name string) bool {
	f, ok := s.api.Objects[memapi.KeyFor("FluentPVC", "", "logs")].(*sondev1.FluentPVC)
	if !ok || s.forbidden || s.api.Objects[pauseKey] != nil {
		return false // the webhook refuses the Pod
	}
	ref := claim.Ref{FluentPVC: f.Name, Claim: name}
	return sidecar.Inject(pod, &f.Spec, sidecar.Injection{Claim: name, Annotation: ref.Sign(key, "shop")}) == nil
}

// makePod creates a Pod that names the FluentPVC, through the webhook.
func (s *schedule) makePod() bool { return s.makePodWith(s.claimName(), "") }

func (s *schedule) makePodWith(claimName, node string) bool {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-" + claimName, Annotations: map[string]string{sondev1.KeyFluentPVC: "logs"}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	return s.webhook(pod, claimName) && s.create(pod)
}

// podsWith returns the Pods that use a claim.
func (s *schedule) podsWith(claimName string) []*corev1.Pod {
	return slices.DeleteFunc(memapi.Of[*corev1.Pod](s.api.Objects, "Pod"), func(p *corev1.Pod) bool {
		return !slices.Contains(claimsOf(p), claimName)
	})
}

func (s *schedule) claimOf(name string) *corev1.PersistentVolumeClaim {
	c, _ := s.api.Objects[memapi.KeyFor("PersistentVolumeClaim", "shop", name)].(*corev1.PersistentVolumeClaim)
	return c
}

func (s *schedule) bindingOf(name string) *sondev1.FluentPVCBinding {
	b, _ := s.api.Objects[memapi.KeyFor(KindBinding, "shop", name)].(*sondev1.FluentPVCBinding)
	return b
}

// usable reports whether scheduler and kubelet let a Pod use its claim.
func (s *schedule) usable(pod *corev1.Pod) (*corev1.PersistentVolumeClaim, bool) {
	names := claimsOf(pod)
	if len(names) == 0 {
		return nil, false
	}
	c := s.claimOf(names[0])
	return c, c != nil && c.DeletionTimestamp.IsZero() && c.Status.Phase != corev1.ClaimLost
}

// playPod plays scheduler, kubelet, garbage collector, and the owner of the Pod.
func (s *schedule) playPod(a *actor, pod *corev1.Pod) {
	c, usable := s.usable(pod)
	switch {
	case !pod.DeletionTimestamp.IsZero():
		if !ended(pod) && s.rand.IntN(2) == 0 {
			s.end(a, corev1.PodFailed)
			return
		}
		s.Trace("the kubelet removes %s", a.key)
		s.api.Remove(a.key)
	case s.orphaned(pod):
		s.deletePod(a.key)
	case ended(pod):
		if !a.stays && metav1.GetControllerOf(pod) == nil {
			s.deletePod(a.key)
		}
	case pod.Status.Phase == corev1.PodRunning:
		s.playRunning(a, pod)
	case !usable:
	case pod.Spec.NodeName == "":
		if c.Status.Phase != corev1.ClaimBound && s.immediate {
			return
		}
		s.Trace("the scheduler binds %s", a.key)
		s.bind(c)
		memapi.Edit(s.api, a.key, func(p *corev1.Pod) { p.Spec.NodeName = "node-a" })
		a.next = s.within(3 * time.Second)
	case c.Status.Phase == corev1.ClaimBound:
		s.Trace("the kubelet starts %s", a.key)
		if pod.Annotations[sondev1.AnnotationClaim] != "" { // a Pod of someone else may start with a claim that is given up
			s.truth.used[c.UID] = true
		}
		memapi.Edit(s.api, a.key, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: running}, {Name: "sidecar", State: running}}
		})
		a.next = s.within(2 * time.Minute)
	}
}

// playRunning ends a Pod, or its sidecar alone.
func (s *schedule) playRunning(a *actor, pod *corev1.Pod) {
	switch {
	case a.sidecarEnds:
		a.sidecarEnds = false
		s.endSidecar(a.key)
		a.next = s.within(2 * time.Minute)
	case a.runsForEver && metav1.GetControllerOf(pod) == nil:
	case a.fails:
		s.end(a, corev1.PodFailed)
	default:
		s.end(a, corev1.PodSucceeded)
	}
}

func (s *schedule) endSidecar(pod memapi.Key) {
	s.Trace("the sidecar of %s ends", pod)
	memapi.Edit(s.api, pod, func(p *corev1.Pod) {
		if p.Status.Phase == corev1.PodRunning && len(p.Status.ContainerStatuses) > 1 {
			p.Status.ContainerStatuses[1].State = exited
		}
	})
}

func (s *schedule) end(a *actor, phase corev1.PodPhase) {
	s.Trace("%s ends: %s", a.key, phase)
	memapi.Edit(s.api, a.key, func(p *corev1.Pod) {
		p.Status.Phase = phase
		for i := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[i].State = exited
		}
	})
	a.next = s.within(time.Minute)
}

// deletePod does what the API server does: a Pod without a node, or one that has ended, goes at once.
func (s *schedule) deletePod(k memapi.Key) {
	pod, ok := s.api.Objects[k].(*corev1.Pod)
	switch {
	case !ok || !pod.DeletionTimestamp.IsZero():
	case pod.Spec.NodeName == "" || ended(pod):
		s.Trace("%s is deleted", k)
		s.api.Remove(k)
	default:
		s.Trace("%s is being deleted", k)
		memapi.Edit(s.api, k, func(p *corev1.Pod) { s.api.Terminate(p) })
		if a := s.actors[pod.UID]; a != nil {
			a.next = s.within(30 * time.Second)
		}
	}
}

// orphaned reports whether the garbage collector deletes an object: its controlling owner is gone, or deletes its dependents first.
func (s *schedule) orphaned(o client.Object) bool {
	ref := metav1.GetControllerOf(o)
	if ref == nil {
		return false
	}
	owner := s.api.Objects[memapi.KeyFor(ref.Kind, o.GetNamespace(), ref.Name)]
	return owner == nil || owner.GetUID() != ref.UID || !owner.GetDeletionTimestamp().IsZero()
}

func (s *schedule) bind(c *corev1.PersistentVolumeClaim) {
	memapi.Edit(s.api, s.api.KeyOf(c), func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status.Phase = "pv-"+string(c.UID), corev1.ClaimBound
	})
}

// playClaim plays provisioner and PVC protection.
func (s *schedule) playClaim(c *corev1.PersistentVolumeClaim) {
	switch {
	case c.DeletionTimestamp.IsZero():
		if s.immediate && c.Spec.VolumeName == "" {
			s.bind(c)
		}
	case !slices.ContainsFunc(s.podsWith(c.Name), func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }):
		s.Trace("claim %s is gone", c.Name)
		memapi.Edit(s.api, s.api.KeyOf(c), func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil })
	}
}

// playJob plays the Job controller and the garbage collector.
func (s *schedule) playJob(a *actor, job *batchv1.Job) {
	var pod *corev1.Pod // the newest
	for _, p := range memapi.Of[*corev1.Pod](s.api.Objects, "Pod") {
		if metav1.IsControlledBy(p, job) && (pod == nil || pod.CreationTimestamp.Before(&p.CreationTimestamp) || pod.Name < p.Name) {
			pod = p
		}
	}
	switch {
	case s.orphaned(job):
		s.Trace("the garbage collector removes %s", a.key)
		s.api.Remove(a.key)
	case !job.DeletionTimestamp.IsZero():
		if pod == nil {
			memapi.Edit(s.api, a.key, func(j *batchv1.Job) { j.Finalizers = nil })
		}
	case jobEnded(job):
	case pod == nil || pod.Status.Phase == corev1.PodFailed && a.retries > 0:
		if pod != nil {
			a.retries--
		}
		s.makeJobPod(job)
		a.next = s.within(10 * time.Second)
	case pod.Status.Phase == corev1.PodSucceeded:
		s.endJob(job, batchv1.JobComplete)
	case pod.Status.Phase == corev1.PodFailed:
		s.endJob(job, batchv1.JobFailed)
	}
}

func jobEnded(job *batchv1.Job) bool { return len(job.Status.Conditions) > 0 }

func (s *schedule) makeJobPod(job *batchv1.Job) {
	s.claims++
	s.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: fmt.Sprintf("%s-%05d", job.Name, s.claims), Labels: job.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec:   *job.Spec.Template.Spec.DeepCopy(),
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	})
}

func (s *schedule) endJob(job *batchv1.Job, condition batchv1.JobConditionType) {
	s.Trace("Job %s ends: %s", job.Name, condition)
	s.truth.jobEnded(s, job, condition == batchv1.JobComplete)
	memapi.Edit(s.api, s.api.KeyOf(job), func(j *batchv1.Job) {
		j.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.clock.Now())}}
	})
}

// playNamespace plays the namespace controller.
func (s *schedule) playNamespace(ns *corev1.Namespace) {
	if ns.DeletionTimestamp.IsZero() {
		return
	}
	left := 0
	for _, kind := range []string{"Pod", "Job", KindBinding, "PersistentVolumeClaim"} {
		for _, o := range memapi.Of[client.Object](s.api.Objects, kind) {
			if o.GetNamespace() != ns.Name {
				continue
			}
			left++
			if kind == "Pod" {
				s.deletePod(s.api.KeyOf(o))
			} else {
				_ = s.api.Delete(s.api.KeyOf(o), nil)
			}
		}
	}
	if left == 0 {
		s.Trace("the namespace is gone")
		s.api.Remove(s.api.KeyOf(ns))
	}
}

// admit does what admission plugins of the API server do.
func (s *schedule) admit(o client.Object) error {
	if ns := s.api.Objects[memapi.KeyFor("Namespace", "", o.GetNamespace())]; ns != nil && !ns.GetDeletionTimestamp().IsZero() {
		err := apierrors.NewForbidden(memapi.Resource(s.api.KeyOf(o).Kind), o.GetName(), errors.New("unable to create new content in namespace shop because it is being terminated"))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
		return err
	}
	if c, ok := o.(*corev1.PersistentVolumeClaim); ok {
		c.Finalizers = []string{pvcProtection}
		c.Status.Phase = corev1.ClaimPending
	}
	return nil
}

// refusal is the API server's answer to a write of the manager for which a right or a quota is missing.
func (s *schedule) refusal(verb string, k memapi.Key) error {
	if k.Kind != "PersistentVolumeClaim" && k.Kind != "Job" {
		return nil
	}
	why := ""
	switch {
	case s.forbidden:
		why = fmt.Sprintf(`User "system:serviceaccount:sonde-system:manager" cannot %s resource %q in the namespace %q`, verb, k.Kind, k.Namespace)
	case s.full && verb == "create":
		why = "exceeded quota: storage"
	default:
		return nil
	}
	return apierrors.NewForbidden(memapi.Resource(k.Kind), k.Name, errors.New(why))
}
