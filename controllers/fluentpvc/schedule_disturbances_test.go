package fluentpvc

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/test/memapi"
)

// disturbances are actions of users, admins and the environment. Each reports whether it did something.
var disturbances = []struct {
	name string
	do   func(*schedule) bool
}{
	{"a Pod is created", (*schedule).makePod},
	{"a Pod is created on a node", func(s *schedule) bool { return s.makePodWith(s.claimName(), "node-a") }},
	{"a Pod is copied before its claim exists", func(s *schedule) bool {
		pod := anyOf[*corev1.Pod](s, "Pod", func(p *corev1.Pod) bool {
			return p.Annotations[sondev1.AnnotationClaim] != "" && s.claimOf(claimsOf(p)[0]) == nil && s.bindingOf(claimsOf(p)[0]) == nil
		})
		if pod == nil {
			return false
		}
		s.claims++
		return s.create(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("copy-", s.claims), Annotations: pod.Annotations}, Spec: *pod.Spec.DeepCopy(),
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		})
	}},
	{"a claim of someone else has the name", func(s *schedule) bool {
		name := s.claimName()
		return s.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}) && s.makePodWith(name, "")
	}},
	{"another Pod uses a claim", func(s *schedule) bool {
		c := s.anyClaim()
		if c == nil {
			return false
		}
		s.claims++
		return s.create(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("debug-", s.claims)},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name},
			}}}},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		})
	}},
	{"a Pod is deleted", func(s *schedule) bool { return s.withPod(func(p *corev1.Pod) { s.deletePod(s.api.KeyOf(p)) }) }},
	{"a Pod is deleted by force", func(s *schedule) bool { return s.withPod(func(p *corev1.Pod) { s.api.Remove(s.api.KeyOf(p)) }) }},
	{"a Pod ends", func(s *schedule) bool {
		return s.withPod(func(p *corev1.Pod) {
			if a := s.actors[p.UID]; a != nil && p.Status.Phase == corev1.PodRunning {
				s.end(a, []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}[s.rand.IntN(2)])
			}
		})
	}},
	{"a sidecar ends", func(s *schedule) bool { return s.withPod(func(p *corev1.Pod) { s.endSidecar(s.api.KeyOf(p)) }) }},
	{"the FluentPVC is deleted", func(s *schedule) bool { return s.api.Delete(memapi.KeyFor("FluentPVC", "", "logs"), nil) == nil }},
	{"the FluentPVC is created or changed", func(s *schedule) bool {
		f := s.definition()
		if s.create(f) {
			return true
		}
		memapi.Edit(s.api, s.api.KeyOf(f), func(there *sondev1.FluentPVC) {
			there.Spec = f.Spec
			there.Generation++
		})
		return true
	}},
	{"a claim loses its volume", func(s *schedule) bool {
		return s.withClaim(func(c *corev1.PersistentVolumeClaim) {
			if c.Status.Phase == corev1.ClaimBound {
				c.Status.Phase = corev1.ClaimLost
			}
		})
	}},
	{"a volume is restored", func(s *schedule) bool {
		return s.withClaim(func(c *corev1.PersistentVolumeClaim) {
			if c.Status.Phase == corev1.ClaimLost {
				c.Status.Phase = corev1.ClaimBound
			}
		})
	}},
	{"an admin deletes a claim", func(s *schedule) bool {
		c := s.anyClaim()
		return c != nil && s.api.Delete(s.api.KeyOf(c), nil) == nil
	}},
	{"an admin deletes a claim by force", func(s *schedule) bool {
		c := s.anyClaim()
		if c != nil {
			s.api.Remove(s.api.KeyOf(c))
		}
		return c != nil
	}},
	{"a user deletes a Job", func(s *schedule) bool {
		job := anyOf[*batchv1.Job](s, "Job", nil)
		if job == nil {
			return false
		}
		switch k := s.api.KeyOf(job); s.rand.IntN(3) {
		case 0:
			memapi.Edit(s.api, k, func(j *batchv1.Job) { j.Finalizers = []string{metav1.FinalizerDeleteDependents} })
			return s.api.Delete(k, nil) == nil
		case 1: // with --cascade=orphan
			for _, p := range memapi.Of[*corev1.Pod](s.api.Objects, "Pod") {
				if metav1.IsControlledBy(p, job) {
					memapi.Edit(s.api, s.api.KeyOf(p), func(p *corev1.Pod) { p.OwnerReferences = nil })
				}
			}
			fallthrough
		default:
			return s.api.Delete(k, nil) == nil
		}
	}},
	{"a user asks for a retry", func(s *schedule) bool {
		return s.annotate(sondev1.AnnotationRetry, func(b *sondev1.FluentPVCBinding) bool { return b.Status.Phase == sondev1.BindingFinalizerJobFailed })
	}},
	{"a user asks for a retry too early", func(s *schedule) bool { return s.annotate(sondev1.AnnotationRetry, nil) }},
	{"a user discards a volume", func(s *schedule) bool { return s.annotate(sondev1.AnnotationDiscard, nil) }},
	{"an admin deletes a binding", func(s *schedule) bool {
		b := anyOf[*sondev1.FluentPVCBinding](s, KindBinding, nil)
		if b == nil || s.rand.IntN(2) == 0 {
			return false
		}
		return s.api.Delete(s.api.KeyOf(b), nil) == nil
	}},
	{"the namespace is deleted", func(s *schedule) bool {
		if s.rand.IntN(3) > 0 || s.api.Objects[shopKey] == nil {
			return false
		}
		memapi.Edit(s.api, shopKey, func(ns *corev1.Namespace) { s.api.Terminate(ns) })
		return true
	}},
	{"the namespace is created again", func(s *schedule) bool {
		return s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}) && s.makePod()
	}},
	{"the permission is withdrawn or given", func(s *schedule) bool { s.forbidden = !s.forbidden; return true }},
	{"a quota is full or raised", func(s *schedule) bool { s.full = !s.full; return true }},
	{"a PodDisruptionBudget comes or goes", func(s *schedule) bool { s.budget = !s.budget; return true }},
	{"an admin pauses the operator", func(s *schedule) bool {
		return s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: pause.ConfigMapName}, Data: map[string]string{pause.Key: "true"}})
	}},
	{"an admin ends the pause", func(s *schedule) bool { return s.api.Delete(pauseKey, nil) == nil }},
	{"nothing happens for minutes", func(s *schedule) bool {
		if s.Depth > 0 {
			return false // a pass does not take that long
		}
		s.clock.Step(time.Duration(s.rand.IntN(600)) * time.Second)
		if s.leader != nil {
			s.leader.catchUp(s.clock.Now().Add(-mostLag))
		}
		return true
	}},
}

func (s *schedule) stepDisturbance() {
	if s.disturbances == 0 {
		return
	}
	d := disturbances[s.rand.IntN(len(disturbances))]
	for s.only != "" && d.name != s.only {
		d = disturbances[s.rand.IntN(len(disturbances))]
	}
	s.Trace("%s?", d.name)
	if d.do(s) {
		s.disturbances--
		s.Trace("%s", d.name)
	}
}

// anyOf returns an object of a kind in the namespace, or the zero value.
func anyOf[T client.Object](s *schedule, kind string, usable func(T) bool) (found T) {
	all := slices.DeleteFunc(memapi.Of[T](s.api.Objects, kind), func(o T) bool {
		return o.GetNamespace() != "shop" || usable != nil && !usable(o)
	})
	if len(all) > 0 {
		found = all[s.rand.IntN(len(all))]
	}
	return found
}

func (s *schedule) anyClaim() *corev1.PersistentVolumeClaim {
	return anyOf[*corev1.PersistentVolumeClaim](s, "PersistentVolumeClaim", nil)
}

func (s *schedule) withPod(do func(*corev1.Pod)) bool {
	before := len(s.api.Log)
	if pod := anyOf[*corev1.Pod](s, "Pod", nil); pod != nil {
		do(pod)
	}
	return len(s.api.Log) > before
}

func (s *schedule) withClaim(change func(*corev1.PersistentVolumeClaim)) bool {
	before := len(s.api.Log)
	if c := s.anyClaim(); c != nil {
		memapi.Edit(s.api, s.api.KeyOf(c), change)
	}
	return len(s.api.Log) > before
}

// annotate adds an annotation of users to a binding.
func (s *schedule) annotate(annotation string, usable func(*sondev1.FluentPVCBinding) bool) bool {
	b := anyOf(s, KindBinding, usable)
	if b == nil {
		return false
	}
	if annotation == sondev1.AnnotationDiscard {
		s.truth.discarded[b.UID] = true
	} else if b.Status.Phase == sondev1.BindingFinalizerJobFailed {
		s.truth.failed[b.UID] = 0
	}
	memapi.Edit(s.api, s.api.KeyOf(b), func(b *sondev1.FluentPVCBinding) {
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, annotation, fmt.Sprint(s.Steps))
	})
	return true
}
