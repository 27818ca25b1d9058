package capture

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/fairqueue"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// workers reconcile different captures at the same time: a pass may wait for keepers.
const workers = 4

// CacheOptions bounds the manager's cache. It keeps only the fields of Pods and Jobs that the operator reads, only labelled Jobs,
// ConfigMaps and Secrets of the operator's namespace, and no managed fields.
func CacheOptions(namespace string) (cache.Options, error) {
	labelled, err := labels.NewRequirement(sondev1.LabelUID, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("select by label: %w", err)
	}
	own := cache.ByObject{Namespaces: map[string]cache.Config{
		namespace: {LabelSelector: labels.NewSelector().Add(*labelled)},
	}}
	jobs := own
	jobs.Transform = target.Slim(namespace)
	return cache.Options{
		DefaultTransform: target.Strip,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:       {Transform: target.Slim(namespace)},
			&batchv1.Job{}:      jobs,
			&corev1.ConfigMap{}: own,
			&corev1.Secret{}:    own,
		},
	}, nil
}

// SetupWithManager watches the kinds that observe reads, so that no pass has to poll. The manager's cache needs CacheOptions and
// target.IndexFields.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.recent = access.NewCached(r.Access, r.Clock, RecentFor(r.AccessReviewInterval))
	r.throttle = newThrottle(r.Clock)
	r.departed = &departedPods{}
	wakes := target.Wakes{Kind: r.Kind.Capture, Reader: mgr.GetClient()}
	wake := handler.EnqueueRequestsFromMapFunc
	identity := builder.WithPredicates(predicate.Funcs{UpdateFunc: identityChanged})
	never := func(event.UpdateEvent) bool { return false }
	created := builder.WithPredicates(predicate.Funcs{UpdateFunc: never, DeleteFunc: func(event.DeleteEvent) bool { return false }})
	b := ctrl.NewControllerManagedBy(mgr).
		Named(r.Kind.controller()).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: fairqueue.New(workers, r.everything)}).
		For(r.Kind.New(), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&batchv1.Job{}, r.throttled(r.ownersOf), builder.WithPredicates(predicate.Funcs{UpdateFunc: slim.JobChanged})).
		Watches(&corev1.Pod{}, r.recording(wakes, r.throttled(r.capturesOf(wakes))), builder.WithPredicates(predicate.Funcs{UpdateFunc: slim.PodChanged})).
		// An object that was created just before its capture was deleted is swept as soon as the cache has it.
		WatchesMetadata(coreMetadata("ConfigMap"), r.throttled(r.ownersOf), created).
		WatchesMetadata(coreMetadata("Secret"), r.throttled(r.ownersOf), created).
		Watches(&batchv1.Job{}, wake(r.queuedForNode), builder.WithPredicates(probeGone(r.Options.Namespace))).
		Watches(&corev1.Pod{}, wake(r.queuedForNode), builder.WithPredicates(probeGone(r.Options.Namespace))).
		WatchesMetadata(target.ReplicaSetMetadata(), wake(wakes.ReplicaSet), identity).
		WatchesMetadata(coreMetadata("Namespace"), wake(wakes.Namespace), identity)
	for _, k := range kind.Captures {
		b = b.Watches(k.New(), wake(r.queuedBehind), builder.WithPredicates(captureEnded()))
	}
	if c, ok := r.PauseConfig.(cache.Cache); ok {
		b = b.WatchesRawSource(source.Kind(c, client.Object(&corev1.ConfigMap{}), wake(pause.Wake(r.Client, r.Kind.Kind))))
	}
	if c, ok := r.GateConfig.(cache.Cache); ok {
		b = b.WatchesRawSource(source.Kind(c, client.Object(&admissionregistrationv1.MutatingWebhookConfiguration{}), wake(r.gated)))
	}
	for _, workload := range []sondev1.TargetKind{sondev1.TargetDeployment, sondev1.TargetStatefulSet, sondev1.TargetDaemonSet} {
		b = b.WatchesMetadata(target.Metadata(workload), wake(wakes.Workload(workload)), identity)
	}
	return b.Complete(r.Watchdog.Watch(r.Kind.controller(), r))
}

// everything wakes all captures of the kind, also those that have ended.
func (r *Reconciler) everything(ctx context.Context) []reconcile.Request {
	var requests []reconcile.Request
	err := r.Kind.Each(ctx, r.Client, func(owner sondev1.AgentJobOwner) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(owner)})
	})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing captures failed", "kind", r.Kind.Name)
	}
	return requests
}

// ownersOf wakes the capture that an object belongs to. Captures of two kinds may have the same name, so it compares the kind.
func (r *Reconciler) ownersOf(_ context.Context, o client.Object) []reconcile.Request {
	if k := o.GetLabels()[sondev1.LabelKind]; k != "" && k != r.Kind.Name {
		return nil
	}
	if key, ok := naming.ParseOwner(o.GetAnnotations()[sondev1.AnnotationOwner]); ok {
		return []reconcile.Request{{NamespacedName: key}}
	}
	return nil
}

// capturesOf wakes the capture of an agent's Pod. Any other Pod wakes the captures that have it as a target.
func (r *Reconciler) capturesOf(wakes target.Wakes) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		if o.GetNamespace() == r.Options.Namespace && o.GetLabels()[sondev1.LabelUID] != "" {
			return r.ownersOf(ctx, o)
		}
		return wakes.Pod(ctx, o)
	}
}

// identityChanged ignores the status of workloads and namespaces, which changes all the time.
func identityChanged(e event.UpdateEvent) bool {
	a, b := e.ObjectOld, e.ObjectNew
	return a.GetUID() != b.GetUID() ||
		a.GetDeletionTimestamp().IsZero() != b.GetDeletionTimestamp().IsZero() ||
		a.GetLabels()[sondev1.LabelHub] != b.GetLabels()[sondev1.LabelHub] ||
		a.GetLabels()[sondev1.LabelOptOut] != b.GetLabels()[sondev1.LabelOptOut] ||
		!equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences())
}

func coreMetadata(kind string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return o
}
