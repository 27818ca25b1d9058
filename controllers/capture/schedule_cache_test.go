package capture

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// informer is the manager's cache of one kind. It has applied the API server's log up to index at.
type informer struct {
	kind string
	at   int
}

// watchedKinds are the kinds in the manager's cache.
var watchedKinds = []string{"PacketCapture", "Job", "Pod", "ConfigMap", "Secret", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Namespace"}

// view is the cache of one manager. Each informer may lag by itself.
type view struct {
	api       *memoryAPI
	informers []*informer
	objects   objectSet
}

// newView returns a cache that was filled from a server that lags by up to lag changes.
func newView(api *memoryAPI, lag int) *view {
	v := &view{api: api, objects: objectSet{}}
	for _, kind := range watchedKinds {
		i := &informer{kind: kind}
		v.informers = append(v.informers, i)
		for i.at < len(api.log)-lag {
			v.apply(i)
		}
	}
	return v
}

// apply reads the next change of the log. It stores and returns the change if the informer caches the object.
func (v *view) apply(i *informer) (change, bool) {
	c := v.api.log[i.at]
	i.at++
	if c.key.kind != i.kind || !cached(c) {
		return change{}, false
	}
	c.old = v.objects[c.key]
	if c.now == nil {
		delete(v.objects, c.key)
		return c, true
	}
	c.now = stripped(c.now)
	v.objects[c.key] = c.now
	return c, true
}

// cached reports whether CacheOptions selects the object.
func cached(c change) bool {
	o := c.now
	if o == nil {
		o = c.old
	}
	switch o.(type) {
	case *batchv1.Job, *corev1.ConfigMap, *corev1.Secret:
		return o.GetNamespace() == operatorNamespace && o.GetLabels()[sondev1.LabelUID] != ""
	}
	return true
}

// stripped applies the cache's transforms.
func stripped(o client.Object) client.Object {
	kept := any(o.DeepCopyObject())
	switch o.(type) {
	case *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet, *appsv1.ReplicaSet, *corev1.Namespace, *corev1.ConfigMap, *corev1.Secret:
		kept = metadata(o)
	}
	if pod, ok := kept.(*corev1.Pod); ok && pod.Namespace == operatorNamespace {
		return target.StripAgent(pod)
	}
	kept, err := target.Strip(kept)
	if err != nil {
		panic(err)
	}
	return kept.(client.Object)
}

// wakesOf returns the captures that an event wakes, by the handlers and predicates of SetupWithManager.
func (m *replica) wakesOf(c change) []reconcile.Request {
	ctx := context.Background()
	wakes := target.Wakes{Kind: kind.PacketCapture, Reader: cacheReader{m.view}}
	identity := predicate.Funcs{UpdateFunc: identityChanged}
	spec := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	pods := predicate.Funcs{UpdateFunc: slim.PodChanged}
	switch c.key.kind {
	case "PacketCapture":
		return mapped(c, spec, func(o client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
		})
	case "Job":
		return mapped(c, predicate.Funcs{UpdateFunc: slim.JobChanged}, func(o client.Object) []reconcile.Request { return m.r.ownersOf(ctx, o) })
	case "ConfigMap", "Secret":
		created := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false }}
		return mapped(c, created, func(o client.Object) []reconcile.Request { return m.r.ownersOf(ctx, o) })
	case "Pod":
		return mapped(c, pods, func(o client.Object) []reconcile.Request { return m.r.capturesOf(wakes)(ctx, o) })
	case "ReplicaSet":
		return mapped(c, identity, func(o client.Object) []reconcile.Request { return wakes.ReplicaSet(ctx, o) })
	case "Namespace":
		return mapped(c, identity, func(o client.Object) []reconcile.Request { return wakes.Namespace(ctx, o) })
	case "Deployment", "StatefulSet", "DaemonSet":
		return mapped(c, identity, func(o client.Object) []reconcile.Request {
			return wakes.Workload(sondev1.TargetKind(c.key.kind))(ctx, o)
		})
	}
	return nil
}

// mapped does what handler.EnqueueRequestsFromMapFunc does.
func mapped(c change, p predicate.Predicate, wake func(client.Object) []reconcile.Request) []reconcile.Request {
	switch {
	case c.old == nil && c.now == nil:
		return nil
	case c.old == nil:
		if p.Create(event.CreateEvent{Object: c.now}) {
			return wake(c.now)
		}
	case c.now == nil:
		if p.Delete(event.DeleteEvent{Object: c.old}) {
			return wake(c.old)
		}
	default:
		if p.Update(event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.now}) {
			return append(wake(c.old), wake(c.now)...)
		}
	}
	return nil
}

// record does what Reconciler.recording does for an event of a Pod.
func (m *replica) record(c change) {
	if c.key.kind != "Pod" {
		return
	}
	if m.forgetful {
		return
	}
	m.r.recordDeparted(context.Background(), target.Wakes{Kind: kind.PacketCapture, Reader: cacheReader{m.view}}, c.old, c.now)
	o := departs(c.old, c.now)
	for _, capture := range m.s.captures {
		pc, ok := m.view.objects[objectKey{"PacketCapture", capture.key.Namespace, capture.key.Name}]
		if o != nil && (!ok || pc.GetUID() != capture.uid) {
			m.unaware[unawareOf{capture.uid, o.GetUID()}] = true
		}
	}
}

// unawareOf is a capture that a cache did not have yet when it lost a Pod.
type unawareOf struct{ capture, pod types.UID }

// applyNext lets an informer apply the next change of its kind. An event may be lost (the change is in the cache, but wakes
// no controller) or come twice.
func (m *replica) applyNext(i *informer, lost, twice bool) {
	for i.at < len(m.view.api.log) {
		c, ok := m.view.apply(i)
		if !ok {
			continue
		}
		m.record(c)
		if lost && c.old != nil {
			m.s.trace("%s loses an event of %s", m, c.key)
			return
		}
		for _, r := range m.wakesOf(c) {
			m.wake(r.NamespacedName)
		}
		if twice {
			for _, r := range m.wakesOf(c) {
				m.wake(r.NamespacedName)
			}
		}
		return
	}
}

// relist lets the informer of Pods list them, as it does after its watch was interrupted for too long. It gets the changes from one
// list to the next, and no Pod that came and went in between.
func (m *replica) relist() {
	i := m.view.informers[slices.Index(watchedKinds, "Pod")]
	listed, changed := objectSet{}, []objectKey{}
	for ; i.at < len(m.view.api.log); i.at++ {
		if c := m.view.api.log[i.at]; c.key.kind == i.kind {
			m.skipped[i.at] = true
			listed[c.key] = c.now
			changed = append(changed, c.key)
		}
	}
	if !m.silent {
		m.r.PodWatch.Listed()
	}
	for _, key := range changed {
		c := change{key: key, old: m.view.objects[key], at: m.s.clock.Now()}
		if now := listed[key]; now != nil {
			c.now = stripped(now)
			m.view.objects[key] = c.now
		} else {
			delete(m.view.objects, key)
		}
		m.record(c)
		for _, r := range m.wakesOf(c) {
			m.wake(r.NamespacedName)
		}
	}
}

// catchUp lets all informers apply the changes up to a time.
func (m *replica) catchUp(before time.Time) {
	for _, i := range m.view.informers {
		for i.at < len(m.view.api.log) && !m.view.api.log[i.at].at.After(before) {
			m.applyNext(i, false, false)
		}
	}
}

// cacheReader reads a view without faults, as event handlers do.
type cacheReader struct{ *view }

func (c cacheReader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return c.objects.get(c.api.scheme, key, o)
}

func (c cacheReader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.objects.list(c.api.scheme, list, opts...)
}
