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

// Wakes says which captures of a kind an event on something of a target's concerns. Names do here: a capture
// that is woken in vain finds nothing to do.
type Wakes struct {
	Kind   kind.Capture
	Reader client.Reader
}

// Pod wakes the captures of the Pod and of its workload; those of any Deployment, where its ReplicaSet is not seen yet or
// no longer.
func (w Wakes) Pod(ctx context.Context, pod client.Object) []reconcile.Request {
	wanted, err := Names(ctx, CachedSets(w.Reader), pod.GetNamespace(), pod)
	if err != nil {
		wanted = append(wanted, sondev1.TargetReference{Kind: sondev1.TargetDeployment})
	}
	return w.captures(ctx, pod.GetNamespace(), wanted...)
}

// ReplicaSet wakes the captures of its Deployment: its Pods may have been seen before it.
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

// Namespace wakes the captures whose target lies in a namespace, and those that lie there themselves.
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

// captures that are not final and have one of the wanted targets in namespace. A wanted target
// without a name stands for all of its kind; none wanted stands for everything.
func (w Wakes) captures(ctx context.Context, namespace string, wanted ...sondev1.TargetReference) []reconcile.Request {
	list := w.Kind.NewList()
	if err := w.Reader.List(ctx, list, client.MatchingFields{IndexTargetNamespace: namespace}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing "+w.Kind.Name+"s for an event", "targetNamespace", namespace)
		return nil
	}
	var requests []reconcile.Request
	for _, capture := range list.Captures() {
		if Matches(capture.Common().Target, wanted) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(capture)})
		}
	}
	return requests
}

// Matches reports whether a target is one of those that are wanted. One without a name stands for all of its kind, none for
// everything.
func Matches(ref sondev1.TargetReference, wanted []sondev1.TargetReference) bool {
	for _, want := range wanted {
		if ref.Kind == want.Kind && (want.Name == "" || ref.Name == want.Name) {
			return true
		}
	}
	return len(wanted) == 0
}
