package collector

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

// replaceNamespace deletes a namespace with all that is in it, and creates it again.
func (w *world) replaceNamespace(name string, uid types.UID) {
	w.t.Helper()
	w.deleteNamespace(name)
	if err := w.Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deleteNamespace(name string) {
	w.t.Helper()
	for _, o := range []client.Object{&batchv1.Job{}, &corev1.Pod{}, &corev1.ConfigMap{}, &corev1.Secret{}} {
		if err := w.DeleteAllOf(w.t.Context(), o, client.InNamespace(name)); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.Delete(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		w.t.Fatal(err)
	}
}

// nothingIn checks that a namespace has nothing of a Collector.
func (w *world) nothingIn(namespace string) {
	w.t.Helper()
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.SecretList{}, &corev1.ConfigMapList{}} {
		if err := w.List(w.t.Context(), list, client.InNamespace(namespace)); err != nil {
			w.t.Fatal(err)
		}
		if n := apimeta.LenList(list); n != 0 {
			w.t.Errorf("%T has %d entries in namespace %s, want none", list, n, namespace)
		}
	}
}

// A namespace that is created again may have another owner, who opened it for Collectors of their own. No Job of an earlier Collector runs
// there, whatever it would be for, until the webhook has admitted the Collector for the new namespace.
func TestNamespaceOfAnotherOwner(t *testing.T) {
	ready := release.Report{Outcome: release.Ready, Revision: 1, ChartVersion: "1.0.0", History: []release.Revision{{Revision: 1, Status: release.Deployed}}}
	failed := release.Report{Outcome: release.Retry, Reason: release.ReasonNotReady, History: []release.Revision{{Revision: 2, Status: "failed"}, {Revision: 1, Status: release.Deployed}}}
	for name, tc := range map[string]struct {
		drift   sondev1.CollectorDrift
		retries int32
		report  release.Report
	}{
		"released":                {report: ready},
		"released, drift: Repair": {report: ready, drift: sondev1.DriftRepair},
		"released, drift: Warn":   {report: ready, drift: sondev1.DriftWarn},
		"another attempt follows": {report: failed, retries: 3},
		"a remedy follows":        {report: failed},
	} {
		t.Run(name, func(t *testing.T) {
			c := fromHub()
			c.Spec.Drift = tc.drift
			c.Spec.Install = &sondev1.CollectorAction{Retries: new(tc.retries)}
			w := newWorld(t, c, hubNamespaces...)
			w.pass()
			w.end(&w.jobs()[0], tc.report)
			w.pass()
			w.deleteNamespace("shop")
			w.closed = true
			w.clock.SetTime(w.clock.Now().Add(time.Hour))
			want(t, w.pass(), sondev1.ConditionStalled, "True", sondev1.ReasonNamespaceReplaced)

			if err := w.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "new"}}); err != nil {
				t.Fatal(err)
			}
			w.closed, w.denied = false, true // the new owner has opened it, and the requester has no right there
			for range 3 {
				w.clock.SetTime(w.clock.Now().Add(time.Hour))
				c = w.pass()
				want(t, c, sondev1.ConditionStalled, "True", sondev1.ReasonNamespaceReplaced)
				want(t, c, sondev1.ConditionReady, "False", sondev1.ReasonNamespaceReplaced)
				w.nothingIn("shop")
			}
			w.quiet("when it is refused")

			w.denied = false
			w.signFor(c, "new") // as the webhook does for a retry
			c.Annotations[sondev1.AnnotationRetry] = "now"
			if err := w.Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			w.pass()
			if n := w.jobsIn("shop"); n != 1 {
				t.Errorf("%d Jobs after the Collector was admitted again, want one", n)
			}
		})
	}
}

// The namespace may be replaced while a pass makes its writes.
func TestNamespaceIsReplacedDuringAPass(t *testing.T) {
	w := newWorld(t, fromHub(), hubNamespaces...)
	reads := 0
	w.Live = interceptor.NewClient(w.Live.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if _, ok := o.(*corev1.Namespace); ok && key.Name == "shop" {
				if reads++; reads == 1 {
					w.replaceNamespace("shop", "new")
				}
			}
			return err
		},
	})
	want(t, w.pass(), sondev1.ConditionStalled, "True", sondev1.ReasonNamespaceReplaced)
	if reads < 2 || len(w.jobs()) != 0 {
		t.Errorf("%d Jobs after %d reads of the namespace, want none", len(w.jobs()), reads)
	}
}
