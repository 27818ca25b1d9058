package collector

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/fairqueue"
	"github.com/sonde-operator/sonde/internal/operator/paging"
	"github.com/sonde-operator/sonde/internal/wire/release"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// workers handle different Collectors at the same time. One namespace gets all but one of them.
const workers = 4

// Cache holds the Jobs of Collectors and their Pods, of all namespaces, and of these only the fields that passes read. It runs on every
// replica, so that a standby can take over at once.
type Cache struct{ cache.Cache }

// NewCache returns the cache. The caller adds it to the manager.
func NewCache(config *rest.Config, scheme *runtime.Scheme) (Cache, error) {
	ours := labels.SelectorFromSet(labels.Set{sondev1.LabelKind: sondev1.CollectorKind})
	c, err := cache.New(config, cache.Options{Scheme: scheme, NewInformer: paging.Informers(toolscache.NewSharedIndexInformer), ByObject: map[client.Object]cache.ByObject{
		&batchv1.Job{}: {Label: ours, Transform: strip},
		&corev1.Pod{}:  {Label: ours, Transform: strip},
	}})
	if err != nil {
		return Cache{}, fmt.Errorf("create the cache of the releasers' Jobs: %w", err)
	}
	return Cache{c}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Cache) NeedLeaderElection() bool { return false }

// Bounds of what the cache keeps of an object, in bytes. Users may write objects with the operator's labels.
const (
	maxOwner = 512
	maxText  = 1024
	maxItems = 4
)

// maxAnnotations are the annotations that the cache keeps, and how long they may be.
var maxAnnotations = map[string]int{
	sondev1.AnnotationOwner: maxOwner, annotationRelease: 2 * naming.MaxLabel, sondev1.AnnotationRun: maxNumber, sondev1.AnnotationGeneration: maxNumber, annotationRemedy: maxNumber,
	annotationSecret: maxUID, annotationRetried: maxRetried,
}

// maxNumber is the length of the longest number. UIDs of Kubernetes are shorter than maxUID.
const (
	maxNumber = 20
	maxUID    = 128
	// maxRetried is the length of the longest status.retried, in bytes.
	maxRetried = 201
)

// strip keeps whose a Job or a Pod is, and its state.
func strip(o any) (any, error) {
	switch o := o.(type) {
	case *batchv1.Job:
		kept := &batchv1.Job{ObjectMeta: stripMeta(&o.ObjectMeta), Status: batchv1.JobStatus{StartTime: o.Status.StartTime}}
		for _, c := range o.Status.Conditions {
			if c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed {
				c.Message = text.Ellipsis(c.Message, maxText)
				kept.Status.Conditions = append(kept.Status.Conditions, c)
			}
		}
		return kept, nil
	case *corev1.Pod:
		kept := &corev1.Pod{ObjectMeta: stripMeta(&o.ObjectMeta)}
		kept.Status.Phase, kept.Status.Reason, kept.Status.Message = o.Status.Phase, text.Ellipsis(o.Status.Reason, maxOwner), text.Ellipsis(o.Status.Message, maxText)
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				kept.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status, Message: text.Ellipsis(c.Message, maxText)}}
			}
		}
		for _, s := range o.Status.ContainerStatuses {
			if s.Name == release.Container {
				kept.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: s.Name, State: stripState(s.State)}}
			}
		}
		return kept, nil
	default:
		return o, nil
	}
}

func stripState(s corev1.ContainerState) corev1.ContainerState {
	switch {
	case s.Terminated != nil:
		kept := &corev1.ContainerStateTerminated{ExitCode: s.Terminated.ExitCode, Reason: s.Terminated.Reason, FinishedAt: s.Terminated.FinishedAt}
		if len(s.Terminated.Message) <= release.MaxReport {
			kept.Message = s.Terminated.Message
		}
		return corev1.ContainerState{Terminated: kept}
	case s.Waiting != nil:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: s.Waiting.Reason, Message: text.Ellipsis(s.Waiting.Message, maxText)}}
	}
	return corev1.ContainerState{}
}

func stripMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Labels: map[string]string{}, Annotations: map[string]string{},
	}
	for a, most := range maxAnnotations {
		if v, ok := m.Annotations[a]; ok && len(v) <= most {
			kept.Annotations[a] = v
		}
	}
	for _, l := range []string{sondev1.LabelKind, sondev1.LabelUID} {
		kept.Labels[l] = m.Labels[l]
	}
	for _, owner := range m.OwnerReferences[:min(len(m.OwnerReferences), maxItems)] {
		if len(owner.APIVersion)+len(owner.Kind)+len(owner.Name)+len(owner.UID) <= maxOwner {
			kept.OwnerReferences = append(kept.OwnerReferences, owner)
		}
	}
	return kept
}

// SetupWithManager watches what passes read. own and paused are the caches of Own and PauseConfig.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, own, paused cache.Cache) error {
	wake := handler.EnqueueRequestsFromMapFunc
	return errors.Join(mgr.Add(orphanSweep{r}), ctrl.NewControllerManagedBy(mgr).
		Named("collector").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: fairqueue.New(workers, r.everything)}).
		For(&sondev1.Collector{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&sondev1.Collector{}, handler.Funcs{DeleteFunc: r.collectorDeleted}).
		WatchesRawSource(source.Kind(own, client.Object(&batchv1.Job{}), wake(r.jobChanged))).
		WatchesRawSource(source.Kind(own, client.Object(&corev1.Pod{}), wake(r.ownerOf))).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.enqueue = q.Add
			return nil
		})).
		WatchesRawSource(source.Kind(paused, client.Object(&corev1.ConfigMap{}), wake(func(ctx context.Context, _ client.Object) []reconcile.Request { return r.everything(ctx) }))).
		Complete(r.Watchdog.Watch("collector", r)))
}

// queue of the controller.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// ownerOf wakes the Collector that a Job or a Pod belongs to. Users can name any owner in objects of theirs: one that does not exist would
// take a pass, and one of another namespace would take that namespace's turn.
func (r *Reconciler) ownerOf(ctx context.Context, o client.Object) []reconcile.Request {
	key, ok := naming.ParseOwner(o.GetAnnotations()[sondev1.AnnotationOwner])
	if !ok {
		return nil
	}
	c := &sondev1.Collector{}
	if err := r.Get(ctx, key, c); err != nil {
		if !gone.Is(err) {
			ctrl.LoggerFrom(ctx).Error(err, "Reading the Collector of an object failed")
		}
		return nil
	}
	if string(c.UID) != o.GetLabels()[sondev1.LabelUID] || c.ReleaseNamespace() != o.GetNamespace() {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// everything wakes all Collectors, and those that are gone and left a release.
func (r *Reconciler) everything(ctx context.Context) []reconcile.Request {
	var all sondev1.CollectorList
	if err := r.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Collectors failed")
		return nil
	}
	requests := r.deleted.requests()
	for i := range all.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return requests
}
