package fluentpvc

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
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
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/claim"
	"github.com/sonde-operator/sonde/internal/operator/fairqueue"
	"github.com/sonde-operator/sonde/internal/operator/paging"
	"github.com/sonde-operator/sonde/internal/operator/slim"
)

// Indexes of Pods.
const (
	// IndexClaims has the names of a Pod's claims.
	IndexClaims = "claims"
	// IndexClaimants has the bucket of each Pod with a FluentPVC that has not ended: it may wait for its claim.
	IndexClaimants = "fluentPVC"
)

// workers handle different claims at the same time. One namespace gets all but one of them.
const workers = 8

// IndexFields adds the indexes of this package to the manager's cache.
func IndexFields(ctx context.Context, indexer client.FieldIndexer) error {
	for field, extract := range map[string]client.IndexerFunc{IndexClaims: claimsOf, IndexClaimants: claimants} {
		if err := indexer.IndexField(ctx, &corev1.Pod{}, field, extract); err != nil {
			return fmt.Errorf("index Pods by %s: %w", field, err)
		}
	}
	return nil
}

// claimsOf returns the names of a Pod's claims. The cache has slim Pods.
func claimsOf(o client.Object) []string {
	switch pod := o.(type) {
	case *slim.Pod:
		return pod.Claims()
	case *corev1.Pod:
		var names []string
		for i := range pod.Spec.Volumes {
			if c := pod.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
				names = append(names, c.ClaimName)
			}
		}
		return names
	default:
		return nil
	}
}

// claimants also has Pods with a node: a Pod that was created with one waits for its claim, too.
func claimants(o client.Object) []string {
	var phase corev1.PodPhase
	switch pod := o.(type) {
	case *slim.Pod:
		phase = pod.Phase()
	case *corev1.Pod:
		phase = pod.Status.Phase
	}
	if phase == corev1.PodSucceeded || phase == corev1.PodFailed || o.GetAnnotations()[sondev1.AnnotationClaim] == "" {
		return nil
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(o.GetNamespace() + "/" + o.GetName()))
	return []string{bucket(int(hash.Sum32() % buckets))}
}

// buckets is the number of parts in which the Pods of IndexClaimants are listed. A list copies its Pods, and a copy takes ten times as
// much memory as the cache.
const buckets = 64

func bucket(n int) string { return strconv.Itoa(n) }

// CacheByObject keeps of bindings what passes read again and again. The templates are in the API server, for the passes that create
// an object of them.
func CacheByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&sondev1.FluentPVCBinding{}: {Transform: stripBinding}}
}

func stripBinding(o any) (any, error) {
	b, ok := o.(*sondev1.FluentPVCBinding)
	if !ok {
		return o, nil
	}
	t := &b.Spec.Template
	b.Spec.Template = sondev1.FluentPVCSpec{
		SidecarContainerTemplate:                       corev1.Container{Name: t.SidecarContainerTemplate.Name},
		DeletePodIfSidecarContainerTerminationDetected: t.DeletePodIfSidecarContainerTerminationDetected,
		SidecarMode: t.SidecarMode, Retention: t.Retention, Finalizer: t.Finalizer,
	}
	b.ManagedFields, b.Labels = nil, nil
	return b, nil
}

// Cache holds the claims and Jobs of bindings, and the RoleBindings of namespaces that allow FluentPVCs. It holds those of all
// namespaces, and of these only the fields that are read. It runs on every replica: a standby serves webhooks, and can take over at once.
type Cache struct {
	cache.Cache

	grants            cache.Informer
	operatorNamespace string
}

// NewCache returns the cache. The caller adds it to the manager.
func NewCache(ctx context.Context, config *rest.Config, operatorNamespace string, scheme *runtime.Scheme) (Cache, error) {
	ours := labels.SelectorFromSet(labels.Set{sondev1.LabelKind: KindBinding})
	c, err := cache.New(config, cache.Options{Scheme: scheme, NewInformer: paging.Informers(toolscache.NewSharedIndexInformer), ByObject: map[client.Object]cache.ByObject{
		&corev1.PersistentVolumeClaim{}: {Label: ours, Transform: stripOwned},
		&batchv1.Job{}:                  {Label: ours, Transform: stripOwned},
		&rbacv1.RoleBinding{}:           grants(operatorNamespace),
	}})
	if err != nil {
		return Cache{}, fmt.Errorf("create the cache of claims: %w", err)
	}
	informer, err := c.GetInformer(ctx, &rbacv1.RoleBinding{}, cache.BlockUntilSynced(false))
	if err != nil {
		return Cache{}, fmt.Errorf("create the cache of RoleBindings: %w", err)
	}
	return Cache{c, informer, operatorNamespace}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Cache) NeedLeaderElection() bool { return false }

// maxOwner is the longest name of an owner that the cache keeps, in bytes: a namespace, a name, and what stands between.
const maxOwner = 512

// stripOwned keeps whose a claim or a Job is, and its state.
func stripOwned(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: stripMeta(&o.ObjectMeta), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: o.Spec.VolumeName},
			Status: corev1.PersistentVolumeClaimStatus{Phase: o.Status.Phase},
		}, nil
	case *batchv1.Job:
		kept := &batchv1.Job{ObjectMeta: stripMeta(&o.ObjectMeta)}
		for _, c := range o.Status.Conditions {
			if c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed {
				kept.Status.Conditions = append(kept.Status.Conditions, c)
			}
		}
		return kept, nil
	default:
		return o, nil
	}
}

func stripMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp,
		Labels: map[string]string{}, Annotations: map[string]string{},
	}
	// A user may write these into a Job of theirs.
	if owner := m.Annotations[sondev1.AnnotationOwner]; len(owner) <= maxOwner {
		kept.Annotations[sondev1.AnnotationOwner] = owner
	}
	for _, l := range []string{sondev1.LabelKind, sondev1.LabelUID, sondev1.LabelTargetPodUID} {
		kept.Labels[l] = m.Labels[l]
	}
	if owner := metav1.GetControllerOf(m); owner != nil && len(owner.APIVersion)+len(owner.Kind)+len(owner.Name)+len(owner.UID) <= maxOwner {
		kept.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return kept
}

// SetupWithManager watches what passes read, so that none has to poll. own and paused are the caches of Own and PauseConfig.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, own, paused cache.Cache) error {
	owner := handler.EnqueueRequestsFromMapFunc(r.ownerOf)
	ended := builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	})
	namespaces := &metav1.PartialObjectMetadata{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("fluentpvc").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: fairqueue.New(workers, r.everything)}).
		For(&sondev1.FluentPVCBinding{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: bindingChanged})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.bindingsOf), builder.WithPredicates(predicate.Funcs{UpdateFunc: slim.PodChanged})).
		Watches(&sondev1.FluentPVC{}, handler.EnqueueRequestsFromMapFunc(r.waiting), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WatchesMetadata(namespaces, handler.EnqueueRequestsFromMapFunc(r.bindingsIn), ended).
		WatchesRawSource(source.Kind(own, client.Object(&corev1.PersistentVolumeClaim{}), owner)).
		WatchesRawSource(source.Kind(own, client.Object(&batchv1.Job{}), owner)).
		WatchesRawSource(source.Kind(own, client.Object(&rbacv1.RoleBinding{}), r.granted())).
		WatchesRawSource(source.Kind(paused, client.Object(&corev1.ConfigMap{}), handler.EnqueueRequestsFromMapFunc(r.waiting))).
		Complete(r.Watchdog.Watch("fluentpvc", r))
}

// ownerOf wakes the binding that a claim or a Job belongs to, or the claim whose binding was lost. Users can name any owner in objects of
// theirs: one that does not exist would take a pass.
func (r *Reconciler) ownerOf(ctx context.Context, o client.Object) []reconcile.Request {
	key, ok := naming.ParseOwner(o.GetAnnotations()[sondev1.AnnotationOwner])
	if !ok || key.Namespace != o.GetNamespace() {
		return nil
	}
	found, err := read(ctx, r.Client, key, &sondev1.FluentPVCBinding{})
	if err == nil && !found {
		found, err = read(ctx, r.Own, key, &corev1.PersistentVolumeClaim{})
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Reading the owner of an object failed")
	}
	if !found {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// bindingsOf wakes the claim that a Pod's annotation names, if the Pod has it, and the bindings of its other claims.
func (r *Reconciler) bindingsOf(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	ref, signed := claim.Parse(r.Key, o.GetNamespace(), o.GetAnnotations()[sondev1.AnnotationClaim])
	for _, name := range claimsOf(o) {
		key := types.NamespacedName{Namespace: o.GetNamespace(), Name: name}
		if !signed || ref.Claim != name {
			if found, err := read(ctx, r.Client, key, &sondev1.FluentPVCBinding{}); err != nil || !found {
				continue
			}
		}
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// bindingsIn wakes the bindings of a namespace.
func (r *Reconciler) bindingsIn(ctx context.Context, o client.Object) []reconcile.Request {
	return r.bindings(ctx, everyBinding, client.InNamespace(o.GetName()))
}

// waiting wakes everything when a FluentPVC is there again, or when the pause has ended.
func (r *Reconciler) waiting(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.everything(ctx)
}

// everything wakes all bindings, all claims, which may have lost theirs, and all Pods that wait for theirs.
func (r *Reconciler) everything(ctx context.Context) []reconcile.Request {
	requests := r.bindings(ctx, everyBinding)
	var claims corev1.PersistentVolumeClaimList
	if err := r.Own.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing claims failed")
	}
	for i := range claims.Items {
		requests = append(requests, r.ownerOf(ctx, &claims.Items[i])...)
	}
	for n := range buckets {
		var pods corev1.PodList
		if err := r.List(ctx, &pods, client.MatchingFields{IndexClaimants: bucket(n)}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing Pods that wait for a claim failed")
		}
		for i := range pods.Items {
			requests = append(requests, r.bindingsOf(ctx, &pods.Items[i])...)
		}
	}
	return requests
}

// bindings returns the bindings that a condition holds for.
func (r *Reconciler) bindings(ctx context.Context, holds func(*sondev1.FluentPVCBinding) bool, in ...client.ListOption) []reconcile.Request {
	var list sondev1.FluentPVCBindingList
	if err := r.List(ctx, &list, append(in, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing bindings failed")
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if holds(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

func everyBinding(*sondev1.FluentPVCBinding) bool { return true }

// bindingChanged also wakes after this controller's own writes: the next row may apply at once, and a pass that read the binding before
// the last write may have found nothing to write.
func bindingChanged(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*sondev1.FluentPVCBinding)
	now, ok2 := e.ObjectNew.(*sondev1.FluentPVCBinding)
	return predicate.AnnotationChangedPredicate{}.Update(e) || e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero() ||
		!ok1 || !ok2 || !equality.Semantic.DeepEqual(before.Status, now.Status)
}
