package intercept

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// everything is the one key of the queue.
var everything = []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "intercepts"}}}

// SetupWithManager watches requests, carriers, and the Pods of namespaces with targets.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	wake := handler.EnqueueRequestsFromMapFunc
	all := func(context.Context, client.Object) []reconcile.Request { return everything }
	carriers := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == r.Options.Namespace && o.GetLabels()[sondev1.LabelKind] == agentjob.KindCarrier
	})
	// The first pass removes what an earlier manager has left, also if there is no request.
	first := make(chan event.GenericEvent, 1)
	first <- event.GenericEvent{Object: &sondev1.InterceptRequest{}}
	b := ctrl.NewControllerManagedBy(mgr).Named("intercepts").
		Watches(&sondev1.InterceptRequest{}, wake(all), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&batchv1.Job{}, wake(all), builder.WithPredicates(carriers, predicate.Funcs{UpdateFunc: slim.JobChanged})).
		Watches(&corev1.Pod{}, wake(all), builder.WithPredicates(carriers, predicate.Funcs{UpdateFunc: slim.PodChanged})).
		WatchesRawSource(source.Channel(first, wake(all))).
		Watches(&corev1.Pod{}, wake(r.targetChanged), builder.WithPredicates(predicate.Funcs{UpdateFunc: slim.PodChanged}))
	if c, ok := r.PauseConfig.(cache.Cache); ok {
		b = b.WatchesRawSource(source.Kind(c, client.Object(&corev1.ConfigMap{}), wake(all)))
	}
	return b.Complete(r)
}

// targetChanged wakes for Pods in namespaces that have a target.
func (r *Reconciler) targetChanged(ctx context.Context, pod client.Object) []reconcile.Request {
	var list sondev1.InterceptRequestList
	in := client.MatchingFields{target.IndexTargetNamespace: pod.GetNamespace()}
	if err := r.List(ctx, &list, in, client.Limit(1), client.UnsafeDisableDeepCopy); err != nil || len(list.Items) > 0 {
		return everything
	}
	return nil
}
