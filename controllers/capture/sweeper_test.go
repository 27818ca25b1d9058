package capture

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
)

// TestSweep checks which objects are left in the operator's namespace after each event.
func TestSweep(t *testing.T) {
	t.Parallel()
	all := []string{"Job web-1-qwer", "ConfigMap shop-web", "Secret shop-web-c0ffee00-keeper"}
	strangers := []string{"ConfigMap of-a-later-kind", "ConfigMap without-owner"}
	again := func(w *world) {
		w.remove(w.capture())
		w.add(newCapture(func(pc *sondev1.PacketCapture) { pc.UID = "the-next-one" }))
	}
	cases := map[string]struct {
		happens func(*world)
		want    []string
	}{
		"nothing happened":             {func(*world) {}, append(all, strangers...)},
		"the capture is deleted":       {func(w *world) { w.remove(w.capture()) }, strangers},
		"the capture is created again": {again, strangers},
		"the capture is being deleted, and another's finalizer holds it": {func(w *world) {
			pc := w.capture()
			pc.Finalizers = []string{"example.test/held"}
			w.update(pc)
			w.remove(pc)
		}, strangers},
	}
	for name, tc := range cases {
		for how, sweep := range map[string]func(*world) error{
			"reconciled": func(w *world) error {
				w.pass()
				return nil
			},
			"at start": func(w *world) error { return w.r.Sweeper.All(w.t.Context()) },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				w := newWorld(t, newCapture(), deployment("web-1")...)
				w.settle()
				w.add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Name: "of-a-later-kind", Namespace: operatorNamespace, Labels: map[string]string{sondev1.LabelUID: "later", sondev1.LabelKind: "Later"},
				}}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "without-owner", Namespace: operatorNamespace}})
				tc.happens(w)
				if how == "reconciled" && name == "the capture is created again" {
					w.stampErr = errors.New("not yet") // the new capture creates nothing in this pass
					_ = w.r.Sweeper.Owner(t.Context(), kind.PacketCapture.Kind, w.key)
				} else if err := sweep(w); err != nil {
					t.Fatal(err)
				}
				got := w.left()
				slices.Sort(got)
				want := slices.Sorted(slices.Values(tc.want))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("left (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestResultAccess(t *testing.T) {
	t.Parallel()
	access := &sondev1.ResultAccess{
		ObjectMeta: metav1.ObjectMeta{Name: "ra", Namespace: "shop", UID: "ra-uid", CreationTimestamp: metav1.NewTime(dawn)},
		Spec:       sondev1.ResultAccessSpec{ExpirationSeconds: 60},
	}
	w := newWorld(t, newCapture(), access)
	r := &ResultAccessReconciler{Client: w.client, Clock: w.clock}
	key := types.NamespacedName{Namespace: "shop", Name: "ra"}
	for _, step := range []struct {
		after, again time.Duration
		there        bool
	}{{0, time.Minute, true}, {59 * time.Second, time.Second, true}, {time.Second, 0, false}, {time.Hour, 0, false}} {
		w.clock.Step(step.after)
		res, err := r.Reconcile(t.Context(), request(key))
		if err != nil || res.RequeueAfter != step.again {
			t.Errorf("at %v: next pass after %v (%v), want %v", w.clock.Since(dawn), res.RequeueAfter, err, step.again)
		}
		err = w.client.Get(t.Context(), key, &sondev1.ResultAccess{})
		if (err == nil) != step.there {
			t.Errorf("at %v: get returns %v, want it to exist: %v", w.clock.Since(dawn), err, step.there)
		}
	}
}
