package capture

import (
	"context"
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
	"github.com/sonde-operator/sonde/test/memapi"
)

// watchedKinds are the kinds in the manager's cache.
var watchedKinds = []string{"PacketCapture", "Job", "Pod", "ConfigMap", "Secret", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Namespace"}

// cached returns what CacheOptions keeps of an object: nil if it does not select the object, otherwise the object after its transforms.
func cached(o client.Object) client.Object {
	switch o.(type) {
	case *batchv1.Job, *corev1.ConfigMap, *corev1.Secret:
		if o.GetNamespace() != operatorNamespace || o.GetLabels()[sondev1.LabelUID] == "" {
			return nil
		}
	}
	kept := any(o.DeepCopyObject())
	switch o.(type) {
	case *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet, *appsv1.ReplicaSet, *corev1.Namespace, *corev1.ConfigMap, *corev1.Secret:
		kept = memapi.Metadata(o)
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
func (m *replica) wakesOf(c memapi.Change) []reconcile.Request {
	ctx := context.Background()
	wakes := target.Wakes{Kind: kind.PacketCapture, Reader: memapi.Reader{View: m.view}}
	identity := predicate.Funcs{UpdateFunc: identityChanged}
	spec := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	pods := predicate.Funcs{UpdateFunc: slim.PodChanged}
	switch c.Key.Kind {
	case "PacketCapture":
		return memapi.Mapped(c, spec, func(o client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
		})
	case "Job":
		return memapi.Mapped(c, predicate.Funcs{UpdateFunc: slim.JobChanged}, func(o client.Object) []reconcile.Request { return m.r.ownersOf(ctx, o) })
	case "ConfigMap", "Secret":
		created := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false }}
		return memapi.Mapped(c, created, func(o client.Object) []reconcile.Request { return m.r.ownersOf(ctx, o) })
	case "Pod":
		return memapi.Mapped(c, pods, func(o client.Object) []reconcile.Request { return m.r.capturesOf(wakes)(ctx, o) })
	case "ReplicaSet":
		return memapi.Mapped(c, identity, func(o client.Object) []reconcile.Request { return wakes.ReplicaSet(ctx, o) })
	case "Namespace":
		return memapi.Mapped(c, identity, func(o client.Object) []reconcile.Request { return wakes.Namespace(ctx, o) })
	case "Deployment", "StatefulSet", "DaemonSet":
		return memapi.Mapped(c, identity, func(o client.Object) []reconcile.Request {
			return wakes.Workload(sondev1.TargetKind(c.Key.Kind))(ctx, o)
		})
	}
	return nil
}

// record does what Reconciler.recording does for an event of a Pod.
func (m *replica) record(c memapi.Change) {
	if c.Key.Kind != "Pod" {
		return
	}
	if m.forgetful {
		return
	}
	m.r.recordDeparted(context.Background(), target.Wakes{Kind: kind.PacketCapture, Reader: memapi.Reader{View: m.view}}, c.Old, c.Now)
	o := departs(c.Old, c.Now)
	for _, capture := range m.s.captures {
		pc, ok := m.view.Objects[memapi.KeyFor("PacketCapture", capture.key.Namespace, capture.key.Name)]
		if o != nil && (!ok || pc.GetUID() != capture.uid) {
			m.unaware[unawareOf{capture.uid, o.GetUID()}] = true
		}
	}
}

// unawareOf is a capture that a cache did not have yet when it lost a Pod.
type unawareOf struct{ capture, pod types.UID }

// applyNext lets an informer apply the next change of its kind. An event may be lost (the change is in the cache, but wakes
// no controller) or come twice.
func (m *replica) applyNext(i *memapi.Informer, lost, twice bool) {
	c, ok := m.view.Next(i)
	if !ok {
		return
	}
	m.record(c)
	if lost && c.Old != nil {
		m.s.Trace("%s loses an event of %s", m, c.Key)
		return
	}
	for _, r := range m.wakesOf(c) {
		m.queue.Add(r.NamespacedName)
	}
	if twice {
		for _, r := range m.wakesOf(c) {
			m.queue.Add(r.NamespacedName)
		}
	}
}

// relist lets the informer of Pods list them, as it does after its watch was interrupted for too long.
func (m *replica) relist() {
	changes, skipped := m.view.Relist(m.view.Informer("Pod"))
	for _, at := range skipped {
		m.skipped[at] = true
	}
	if !m.silent {
		m.r.PodWatch.Listed()
	}
	for _, c := range changes {
		c, _ = m.view.Store(c)
		m.record(c)
		for _, r := range m.wakesOf(c) {
			m.queue.Add(r.NamespacedName)
		}
	}
}

// catchUp lets all informers apply the changes up to a time.
func (m *replica) catchUp(before time.Time) {
	for _, i := range m.view.Informers {
		for m.view.Behind(i, before) {
			m.applyNext(i, false, false)
		}
	}
}
