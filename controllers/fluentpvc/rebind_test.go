package fluentpvc

import (
	"errors"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// bound is a world with a Pod that uses its volume, and its binding.
func bound(t *testing.T) (w *world, delPod, delBinding, delFluentPVC func()) {
	t.Helper()
	pod := targetPod("1")
	w = newWorld(t, fluentPVC(), pod)
	w.settled()
	w.bind()
	w.settled()
	del := func(o func() error) func() {
		return func() {
			t.Helper()
			if err := o(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w, func() { w.endPod(pod) }, del(func() error { return w.Delete(t.Context(), w.binding()) }),
		del(func() error {
			return w.Delete(t.Context(), &sondev1.FluentPVC{ObjectMeta: metav1.ObjectMeta{Name: "logs"}})
		})
}

// A binding that was deleted is made again, whether its Pod still runs or not, and the data is processed before the claim goes.
func TestBindingDeleted(t *testing.T) {
	for name, podFirst := range map[string]bool{"Pod runs": false, "Pod has ended": true} {
		t.Run(name, func(t *testing.T) {
			w, delPod, delBinding, _ := bound(t)
			uid := w.claim().UID
			if podFirst {
				delPod()
			}
			delBinding()
			w.settled()
			if !podFirst {
				w.wantPhase(sondev1.BindingReady)
				delPod()
				w.settled()
			}
			b := w.wantPhase(sondev1.BindingFinalizerJobApplied)
			if c := w.claim(); c == nil || c.UID != uid {
				t.Fatalf("claim %v, want the one with the data", c)
			}
			if b.Spec.Pod != (sondev1.ObjectReference{Name: "web-1", UID: "pod-1"}) || b.Spec.FluentPVC.Name != "logs" {
				t.Errorf("binding %+v", b.Spec)
			}
			w.endJob(1, batchv1.JobComplete)
			w.settled()
			if w.claim() != nil || w.binding() != nil {
				t.Errorf("claim %v and binding %v are left", w.claim(), w.binding())
			}
		})
	}
}

// Without its FluentPVC, or with a forged annotation, a claim keeps its data, and an Event says what to do.
func TestClaimWithoutBinding(t *testing.T) {
	tests := map[string]struct {
		with  func(t *testing.T, w *world, delFluentPVC func())
		wants []string
	}{
		"FluentPVC deleted": {
			func(_ *testing.T, _ *world, delFluentPVC func()) { delFluentPVC() },
			[]string{"FluentPVC logs was deleted, too: create it again, and the operator makes the binding again", "or save its data", "discard " + claimName + " -n shop"},
		},
		"FluentPVC changed past the webhook": {
			func(_ *testing.T, w *world, _ func()) {
				w.invalid = errors.New("the stamp is not valid " + strings.Repeat("x", 2000))
			},
			[]string{"delete FluentPVC logs, which cannot be used (the stamp is not valid", "and create it again", "discard " + claimName + " -n shop"},
		},
		"FluentPVC of a ServiceAccount": {
			func(t *testing.T, w *world, _ func()) {
				t.Helper()
				f := &sondev1.FluentPVC{}
				if err := w.Get(t.Context(), client.ObjectKey{Name: "logs"}, f); err != nil {
					t.Fatal(err)
				}
				f.Spec.PVCFinalizerJobSpecTemplate.Template.Spec.ServiceAccountName = "uploader"
				if err := w.Update(t.Context(), f); err != nil {
					t.Fatal(err)
				}
			},
			[]string{"delete FluentPVC logs, which cannot be used (the finalizer Job would run as ServiceAccount uploader", "discard " + claimName + " -n shop"},
		},
		"annotation forged": {
			func(t *testing.T, w *world, _ func()) {
				t.Helper()
				c := w.claim()
				c.Annotations[sondev1.AnnotationClaim] = "logs/" + claimName + "/00"
				if err := w.Update(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			},
			[]string{"save its data", "discard " + claimName + " -n shop"},
		},
		"given up": {
			func(t *testing.T, w *world, _ func()) {
				t.Helper()
				c := w.claim()
				c.Annotations[sondev1.AnnotationDiscard] = ""
				if err := w.Update(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			},
			nil,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, delPod, delBinding, delFluentPVC := bound(t)
			tc.with(t, w, delFluentPVC)
			delPod()
			delBinding()
			if n := w.settled(); n != 0 || w.claim() == nil || w.binding() != nil {
				t.Errorf("%d writes, claim %v, binding %v: want the claim alone", n, w.claim(), w.binding())
			}
			if tc.wants == nil {
				if n := len(w.events.Events); n != 0 {
					t.Errorf("%d Events, want none", n)
				}
				return
			}
			event := <-w.events.Events
			for _, want := range tc.wants {
				if !strings.Contains(event, want) {
					t.Errorf("event %q does not say %q", event, want)
				}
			}
		})
	}
}

// When the FluentPVC is created again, its claims without a binding are woken.
func TestFluentPVCCreatedAgain(t *testing.T) {
	w, delPod, delBinding, delFluentPVC := bound(t)
	delFluentPVC()
	delPod()
	delBinding()
	w.settled()
	f := fluentPVC()
	if err := w.Create(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if requests := w.r.waiting(t.Context(), f); len(requests) != 1 || requests[0].Name != claimName {
		t.Fatalf("woken: %v, want the claim", requests)
	}
	w.settled()
	w.wantPhase(sondev1.BindingFinalizerJobApplied)
}
