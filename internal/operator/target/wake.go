package target

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
)

// Wakes maps an event on a target, or on an object of one, to the captures of a kind that it concerns. It may match by
// name, because an unneeded pass changes nothing.
type Wakes struct {
	Kind   kind.Capture
	Reader client.Reader
}

// Pod wakes the captures of the Pod and of its workload. If the cache does not have the Pod's ReplicaSet, it wakes the
// captures of all Deployments.
func (w Wakes) Pod(ctx context.Context, pod client.Object) []reconcile.Request {
	wanted, err := Names(ctx, CachedSets(w.Reader), pod.GetNamespace(), pod)
	if err != nil {
		wanted = append(wanted, sondev1.TargetReference{Kind: sondev1.TargetDeployment})
	}
	return w.captures(ctx, pod.GetNamespace(), wanted...)
}

// Captures returns the captures that are not final and have the Pod, or its workload, as a target, by FormerNames. The caller must
// not change them.
func (w Wakes) Captures(ctx context.Context, pod client.Object) []sondev1.Capture {
	wanted := FormerNames(ctx, w.Reader, pod.GetNamespace(), pod)
	var found []sondev1.Capture
	for _, capture := range w.in(ctx, pod.GetNamespace()) {
		if Matches(capture.Common().Target, wanted) {
			found = append(found, capture)
		}
	}
	return found
}

// ReplicaSet wakes the captures of its Deployment: events of its Pods may have come before its own.
func (w Wakes) ReplicaSet(ctx context.Context, set client.Object) []reconcile.Request {
	owner := metav1.GetControllerOfNoCopy(set)
	if owner == nil || owner.Kind != string(sondev1.TargetDeployment) {
		return nil
	}
	return w.captures(ctx, set.GetNamespace(), sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: owner.Name})
}

// Workload wakes the captures of a workload of the given kind.
func (w Wakes) Workload(kind sondev1.TargetKind) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return w.captures(ctx, o.GetNamespace(), sondev1.TargetReference{Kind: kind, Name: o.GetName()})
	}
}

// Namespace wakes the captures in a namespace, and captures with a target in it.
func (w Wakes) Namespace(ctx context.Context, namespace client.Object) []reconcile.Request {
	all := w.Kind.NewList()
	if err := w.Reader.List(ctx, all, client.InNamespace(namespace.GetName()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing "+w.Kind.Name+"s for an event", "Namespace", namespace.GetName())
		return nil
	}
	requests := w.captures(ctx, namespace.GetName())
	for _, capture := range all.Captures() {
		if !capture.CaptureStatus().Phase.Final() && capture.Common().TargetNamespace != namespace.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(capture)})
		}
	}
	return requests
}

// captures returns the captures that are not final and have one of the wanted targets in namespace, as Matches decides.
func (w Wakes) captures(ctx context.Context, namespace string, wanted ...sondev1.TargetReference) []reconcile.Request {
	var requests []reconcile.Request
	for _, capture := range w.in(ctx, namespace) {
		if Matches(capture.Common().Target, wanted) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(capture)})
		}
	}
	return requests
}

// in returns the captures that are not final and have a target in namespace.
func (w Wakes) in(ctx context.Context, namespace string) []sondev1.Capture {
	list := w.Kind.NewList()
	if err := w.Reader.List(ctx, list, client.MatchingFields{IndexTargetNamespace: namespace}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing "+w.Kind.Name+"s for an event", "targetNamespace", namespace)
		return nil
	}
	return list.Captures()
}

// Matches reports whether ref is one of the wanted targets. A wanted target without a name matches all of its kind. An empty
// list matches everything.
func Matches(ref sondev1.TargetReference, wanted []sondev1.TargetReference) bool {
	for _, want := range wanted {
		if ref.Kind == want.Kind && (want.Name == "" || ref.Name == want.Name) {
			return true
		}
	}
	return len(wanted) == 0
}
