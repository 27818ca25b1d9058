package collector

import (
	"context"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// anchors returns the number of anchors that exist.
func (w *world) anchors() int {
	w.t.Helper()
	var list corev1.ConfigMapList
	if err := w.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	return len(list.Items)
}

// fromHub returns a Collector whose release is in another namespace.
func fromHub() *sondev1.Collector {
	c := newCollector()
	c.Spec.Tenant.Reference = "SHOP"
	return c
}

var hubNamespaces = []client.Object{
	&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme", UID: uidOf("acme"), Labels: map[string]string{sondev1.LabelHub: "true"}}},
	&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: uidOf("shop")}},
}

// A Collector that is gone takes its anchor with it, also in another namespace, also if its Jobs are gone, and also if another Collector
// has its name.
func TestDeletedCollector(t *testing.T) {
	for name, tc := range map[string]struct {
		collector *sondev1.Collector
		objects   []client.Object
		again     bool
	}{
		"from a hub":                    {collector: fromHub(), objects: hubNamespaces},
		"from a hub, and created again": {collector: fromHub(), objects: hubNamespaces, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.collector, tc.objects...)
			c := w.pass()
			if n := w.anchors(); n != 1 {
				t.Fatalf("%d anchors, want one", n)
			}
			if err := w.Delete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			for _, job := range w.jobs() {
				if err := w.Delete(t.Context(), &job); err != nil {
					t.Fatal(err)
				}
			}
			if tc.again {
				other := fromHub()
				other.UID, other.Spec.Suspend = "c-2", true
				if err := w.Create(t.Context(), other); err != nil {
					t.Fatal(err)
				}
			}
			if len(w.queue.requests) != 1 {
				t.Errorf("woken: %v, want its own pass", w.queue.requests)
			}
			w.pass()
			if n := w.anchors(); n != 0 {
				t.Errorf("%d anchors, want none", n)
			}
			if left := w.deleted.requests(); len(left) > 0 || w.deleted.total != 0 {
				t.Errorf("still recorded: %v", left)
			}
		})
	}
}

// A Collector that was never released leaves nothing to do in a namespace that is closed. For one that was, the operator asks again later
// whether it may remove the release.
func TestClosedWhenDeleted(t *testing.T) {
	for name, ran := range map[string]bool{"released": true, "never released": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fromHub(), hubNamespaces...)
			w.closed = !ran
			c := w.pass()
			if err := w.Delete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			w.Live = interceptor.NewClient(w.Live.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if key.Namespace == "shop" {
						return apierrors.NewForbidden(corev1.Resource("configmaps"), key.Name, nil)
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			result, err := w.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
			if err != nil || (result.RequeueAfter == maxClosedDelay) != ran || (len(w.deleted.requests()) == 1) != ran {
				t.Errorf("%+v, %v, recorded %v; want another pass: %t", result, err, w.deleted.requests(), ran)
			}
		})
	}
}

// A manager that starts finds the release of a Collector that was deleted before.
func TestDeletedWithoutAManager(t *testing.T) {
	w := newWorld(t, fromHub(), hubNamespaces...)
	c := w.pass()
	if err := w.removeOrphans(t.Context()); err != nil || w.anchors() != 1 {
		t.Fatalf("%d anchors while the Collector exists, %v", w.anchors(), err)
	}
	if err := w.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.deleted = deletedCollectors{}
	if err := w.removeOrphans(t.Context()); err != nil || w.anchors() != 0 {
		t.Errorf("%d anchors, %v", w.anchors(), err)
	}
}

// The record of deleted Collectors is bounded: a replica that does not lead makes no pass over them.
func TestDeletedCollectorsAreBounded(t *testing.T) {
	var d deletedCollectors
	for i := range 2 * maxDeleted {
		c := fromHub()
		c.Name, c.UID = fmt.Sprint("c-", i), types.UID(fmt.Sprint("u-", i))
		d.add(c)
		d.add(c) // a second watch
	}
	if d.total != maxDeleted || len(d.requests()) != maxDeleted {
		t.Errorf("%d of %d recorded, want %d", d.total, len(d.requests()), maxDeleted)
	}
}

// forgedAnchors returns Jobs of a namespace that name another namespace's Collector as their owner, and made-up anchors.
func forgedAnchors(namespace, anchor string, n int) (forged []client.Object) {
	for i := range n {
		forged = append(forged, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprint("job-", i), Labels: map[string]string{sondev1.LabelKind: sondev1.CollectorKind, sondev1.LabelUID: "u"},
			Annotations:     map[string]string{sondev1.AnnotationOwner: "acme/mine"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: anchor, UID: types.UID(fmt.Sprint("x-", i))}},
		}})
	}
	return forged
}

// Jobs that name a Collector of another namespace as their owner cost the pass of that Collector no request, and do not stop it. A sweep
// makes a bounded number of requests, and reads metadata alone.
func TestForgedAnchorsDoNotStopACollector(t *testing.T) {
	const namespaces = 2 * maxAllOrphans / maxOrphans
	for name, anchor := range map[string]string{"an impossible name": anchorPrefix + "a/b", "a name": anchorPrefix + "a"} {
		t.Run(name, func(t *testing.T) {
			var forged []client.Object
			for i := range namespaces {
				forged = append(forged, forgedAnchors(fmt.Sprint("eve-", i), anchor, 2*maxOrphans)...)
			}
			w := newWorld(t, newCollector(), forged...)
			requests := map[string]int{}
			all := 0
			w.Live = interceptor.NewClient(w.Live.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if !strings.HasPrefix(key.Namespace, "eve") {
						return c.Get(ctx, key, o, opts...)
					}
					if _, ok := o.(*metav1.PartialObjectMetadata); !ok {
						t.Errorf("a whole %T is read", o)
					}
					requests[key.Namespace]++
					all++
					return apierrors.NewBadRequest("an error that is neither NotFound nor Forbidden")
				},
			})
			want(t, w.pass(), sondev1.ConditionReconciling, "True", sondev1.ReasonReleasing)
			if all != 0 {
				t.Errorf("the pass makes %d requests to other namespaces", all)
			}
			err := w.removeOrphans(t.Context())
			most := map[string]int{anchorPrefix + "a": maxAllOrphans}[anchor]
			if all != most || (err != nil) != (most > 0) {
				t.Errorf("a sweep makes %d requests, want %d; %v", all, most, err)
			}
			for namespace, n := range requests {
				if n > maxOrphans {
					t.Errorf("%d requests to namespace %s, want at most %d", n, namespace, maxOrphans)
				}
			}
		})
	}
}

// An anchor that holds a release's name is read without its data, and so is the Collector that it names.
func TestHeldAnchorIsReadInPart(t *testing.T) {
	held := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "acme", Name: anchorName(newCollector()), Labels: map[string]string{sondev1.LabelKind: sondev1.CollectorKind, sondev1.LabelUID: "c-2"},
			Annotations: map[string]string{sondev1.AnnotationOwner: "eve/hers"},
		},
		Data: map[string]string{"large": "x"},
	}
	w := newWorld(t, newCollector(), held, &sondev1.Collector{ObjectMeta: metav1.ObjectMeta{Namespace: "eve", Name: "hers", UID: "c-2"}})
	w.Live = interceptor.NewClient(w.Live.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*metav1.PartialObjectMetadata); !ok && (key.Name == held.Name || key.Name == "hers") {
				t.Errorf("a whole %T is read", o)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	want(t, w.pass(), sondev1.ConditionStalled, "True", sondev1.ReasonReleaseNameTaken)
}

// A Job or a Pod wakes the Collector that it names only if it has the Collector's UID, and is in the namespace of the release. So neither
// can take another namespace's turn.
func TestForgedOwnersWakeNobody(t *testing.T) {
	hub := fromHub()
	hub.Name, hub.UID = "far", "c-2"
	w := newWorld(t, newCollector(), hub)
	woken := func(namespace, owner string, uid types.UID) (by int) {
		meta := metav1.ObjectMeta{
			Namespace: namespace, Name: "forged", Annotations: map[string]string{sondev1.AnnotationOwner: owner},
			Labels: map[string]string{sondev1.LabelKind: sondev1.CollectorKind, sondev1.LabelUID: string(uid)},
		}
		for _, o := range []client.Object{&batchv1.Job{ObjectMeta: meta}, &corev1.Pod{ObjectMeta: meta}} {
			by += len(w.ownerOf(t.Context(), o))
		}
		return by
	}
	for _, tc := range []struct {
		namespace, owner string
		uid              types.UID
		want             int
	}{
		{"acme", "acme/mine", "c-1", 2},
		{"shop", "acme/far", "c-2", 2},
		{"eve", "acme/mine", "c-1", 0},
		{"acme", "acme/far", "c-2", 0},
		{"acme", "acme/mine", "another", 0},
		{"acme", "acme/mine", "", 0},
		{"acme", "", "c-1", 0},
		{"eve", "eve/made-up", "c-1", 0},
	} {
		if got := woken(tc.namespace, tc.owner, tc.uid); got != tc.want {
			t.Errorf("a Job and a Pod of %s with owner %q and UID %q wake %d, want %d", tc.namespace, tc.owner, tc.uid, got, tc.want)
		}
	}
	for i := range 1000 {
		if woken("eve", fmt.Sprint("made-up-", i, "/x"), "u") != 0 {
			t.Fatal("a made-up owner is woken")
		}
	}
}

// TestOrphansTakeTurns: whatever other namespaces have, each has a turn within few sweeps, and those with little in the first ones.
func TestOrphansTakeTurns(t *testing.T) {
	const namespaces = 2*maxAllOrphans + 10
	in := map[string][]orphan{}
	for i := range namespaces {
		name := fmt.Sprintf("eve-%03d", i)
		for j := range maxOrphans {
			in[name] = append(in[name], orphan{client.ObjectKey{Namespace: name, Name: fmt.Sprint(j)}, "u"})
		}
	}
	r, seen := &Reconciler{}, map[string]bool{}
	for sweep := range 3 {
		found := r.takeTurns(in)
		if len(found) != maxAllOrphans {
			t.Errorf("sweep %d has %d orphans, want %d", sweep, len(found), maxAllOrphans)
		}
		for _, o := range found {
			seen[o.Namespace], r.sweptTo = true, o.Namespace
		}
	}
	if len(seen) != namespaces {
		t.Errorf("%d of %d namespaces had a turn in three sweeps", len(seen), namespaces)
	}
	few := map[string][]orphan{"a": in["eve-000"], "b": in["eve-001"][:1]}
	if found := r.takeTurns(few); len(found) != maxOrphans+1 {
		t.Errorf("%d orphans of two namespaces, want %d", len(found), maxOrphans+1)
	}
	if found := r.takeTurns(nil); len(found) != 0 {
		t.Errorf("%d orphans of none", len(found))
	}
}
