// Package sweep deletes the operator's objects whose owner no longer exists. Sonde sets no finalizers, so that the
// deletion of an owner never hangs when the operator is gone; the sweeper replaces them.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/paging"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// DefaultInterval is how often everything is swept. Only objects whose deletion event was lost wait so long.
const DefaultInterval = 10 * time.Minute

// timeout bounds a sweep of everything, in case the API server accepts a request and never answers.
const timeout = 5 * time.Minute

// Sweeper deletes the Jobs, ConfigMaps and Secrets of owners that are gone.
type Sweeper struct {
	// Client deletes, and reads from the cache, which needs target.IndexFields. Live reads from the API server.
	Client   client.Client
	Live     client.Reader
	Clock    clock.WithTicker
	Interval time.Duration
	// Namespace of the operator.
	Namespace string
	// Parallelism is the number of deletions at the same time.
	Parallelism int
	// Watchdog of sweeps of everything.
	Watchdog *health.Watchdog

	missing missingKinds
}

// NeedLeaderElection makes the manager run Start on the leader alone.
func (s *Sweeper) NeedLeaderElection() bool { return true }

// Start sweeps everything at once and then at each interval, until ctx ends. It implements manager.Runnable.
func (s *Sweeper) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("sweeper")
	ctx = ctrl.LoggerInto(ctx, log)
	ticker := s.Clock.NewTicker(s.Interval)
	defer ticker.Stop()
	for {
		var retry <-chan time.Time
		if err := s.All(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Sweeping failed, trying again later", "interval", s.Interval.String())
			if errors.Is(err, errKindUnclear) {
				retry = s.Clock.After(RetryDelay)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-retry:
		case <-ticker.C():
		}
	}
}

// All deletes the objects of all owners that are gone. It reads the cache first, and asks the API server only about
// objects whose owner the cache does not have.
func (s *Sweeper) All(ctx context.Context) error {
	defer s.Watchdog.Begin("sweeper")()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var errs []error
	for _, k := range kind.Owners {
		errs = append(errs, s.sweepKind(ctx, k))
	}
	return errors.Join(errs...)
}

func (s *Sweeper) sweepKind(ctx context.Context, k kind.Kind) error {
	var living []string
	err := k.Each(ctx, s.Client, func(owner sondev1.AgentJobOwner) {
		if owner.GetDeletionTimestamp().IsZero() {
			living = append(living, string(owner.GetUID()))
		}
	})
	if err != nil && !gone.IsKind(err) {
		return fmt.Errorf("list %ss: %w", k.Name, err)
	}
	orphans, err := orphansOf(k, living)
	if err != nil {
		return err
	}
	// Read objects before owners, so that the list of owners is never older than an object.
	objects, err := s.objects(ctx, k, orphans, orphans)
	if err != nil {
		return err
	}
	if len(objects) == 0 {
		return nil
	}
	alive, err := s.alive(ctx, k)
	if err != nil {
		return err
	}
	return s.deleteAll(ctx, slices.DeleteFunc(objects, func(o *metav1.PartialObjectMetadata) bool { return alive[o.GetLabels()[sondev1.LabelUID]] }))
}

// orphansOf selects objects whose owner is not among the living ones. The cache applies the selector before it copies: copies
// of the objects of thousands of Pods would take most of the manager's memory.
func orphansOf(k kind.Kind, living []string) (*client.ListOptions, error) {
	selectors := []client.ListOption{client.MatchingLabels{sondev1.LabelKind: k.Name}, client.HasLabels{sondev1.LabelUID}}
	if len(living) > 0 {
		others, err := labels.NewRequirement(sondev1.LabelUID, selection.NotIn, living)
		if err != nil {
			return nil, fmt.Errorf("select by owner: %w", err)
		}
		selectors = slices.Insert(selectors, 0, client.ListOption(client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*others)}))
	}
	return (&client.ListOptions{}).ApplyOptions(selectors), nil
}

// alive reads from the API server which owners of a kind exist, by UID.
func (s *Sweeper) alive(ctx context.Context, k kind.Kind) (map[string]bool, error) {
	alive := map[string]bool{}
	err := paging.Each(ctx, s.Live, func() *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(sondev1.GroupVersion.WithKind(k.Name + "List"))
		return list
	}, func(owners *metav1.PartialObjectMetadataList) {
		for i := range owners.Items {
			alive[string(owners.Items[i].UID)] = owners.Items[i].DeletionTimestamp.IsZero()
		}
	})
	if err := s.missing.check(k.Name, err, s.Clock.Now()); err != nil {
		return nil, fmt.Errorf("list %ss: %w", k.Name, err)
	}
	return alive, nil
}

// Owner deletes the objects of an owner of this kind and name that is gone, being deleted, or replaced by another of the same
// name. Objects that the cache does not have yet wake the controller later.
func (s *Sweeper) Owner(ctx context.Context, k kind.Kind, owner types.NamespacedName) error {
	by := client.MatchingFields{target.IndexOwner: owner.Namespace + "/" + owner.Name}
	objects, err := s.objects(ctx, k, by, by)
	if err != nil || len(objects) == 0 {
		return err
	}
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(sondev1.GroupVersion.WithKind(k.Name))
	if err := s.missing.check(k.Name, s.Live.Get(ctx, owner, now), s.Clock.Now()); err != nil {
		return fmt.Errorf("get %s: %w", k.Name, err)
	}
	if now.DeletionTimestamp.IsZero() && now.UID != "" {
		objects = slices.DeleteFunc(objects, func(o *metav1.PartialObjectMetadata) bool { return o.Labels[sondev1.LabelUID] == string(now.UID) })
	}
	return s.deleteAll(ctx, objects)
}

// Remove deletes all objects of the owner with this kind and UID, whether it exists or not.
func (s *Sweeper) Remove(ctx context.Context, k kind.Kind, owner types.UID) error {
	objects, err := s.objects(ctx, k, client.MatchingFields{target.IndexCapture: string(owner)}, target.Parts(owner)...)
	if err != nil {
		return err
	}
	return s.deleteAll(ctx, objects)
}

// objects reads the objects of owners of a kind from the cache, except those being deleted. jobs selects the Jobs, part by
// part; others selects ConfigMaps and Secrets.
func (s *Sweeper) objects(ctx context.Context, k kind.Kind, others client.ListOption, jobs ...client.ListOption) ([]*metav1.PartialObjectMetadata, error) {
	type query struct {
		kind schema.GroupVersionKind
		list client.ObjectList
		by   client.ListOption
	}
	var queries []query // Jobs first: their Pods mount the others
	for _, by := range jobs {
		queries = append(queries, query{batchv1.SchemeGroupVersion.WithKind("Job"), &batchv1.JobList{}, by}) // the cache holds whole Jobs
	}
	queries = append(queries, query{corev1.SchemeGroupVersion.WithKind("ConfigMap"), metadataList("ConfigMap"), others},
		query{corev1.SchemeGroupVersion.WithKind("Secret"), metadataList("Secret"), others})
	var objects []*metav1.PartialObjectMetadata
	for _, q := range queries {
		gvk, list := q.kind, q.list
		if err := s.Client.List(ctx, list, q.by, client.InNamespace(s.Namespace)); err != nil {
			return nil, fmt.Errorf("list %ss to sweep: %w", gvk.Kind, err)
		}
		err := apimeta.EachListItem(list, func(item runtime.Object) error {
			o, err := apimeta.Accessor(item)
			if err != nil || o.GetLabels()[sondev1.LabelKind] != k.Name || o.GetLabels()[sondev1.LabelUID] == "" || !o.GetDeletionTimestamp().IsZero() {
				return err
			}
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), Labels: o.GetLabels(), Annotations: o.GetAnnotations(),
			}}
			object.SetGroupVersionKind(gvk)
			objects = append(objects, object)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %ss to sweep: %w", gvk.Kind, err)
		}
	}
	return objects, nil
}

func (s *Sweeper) deleteAll(ctx context.Context, objects []*metav1.PartialObjectMetadata) error {
	errs := make([]error, len(objects))
	workqueue.ParallelizeUntil(context.Background(), max(s.Parallelism, 1), len(objects), func(i int) {
		o := objects[i]
		ctrl.LoggerFrom(ctx).Info("Deleting an object without an owner", "kind", o.Kind, "object", o.Name, "owner", o.Annotations[sondev1.AnnotationOwner])
		errs[i] = Delete(ctx, s.Client, o)
	})
	return errors.Join(errs...)
}

// Delete deletes this object, and no other of its name, together with its dependents, which go after it unless opts say otherwise. An
// object that is gone is no error.
func Delete(ctx context.Context, c client.Client, o client.Object, opts ...client.DeleteOption) error {
	uid := o.GetUID()
	opts = append([]client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid}}, opts...)
	err := c.Delete(ctx, o, opts...)
	if err == nil || gone.Is(err) || apierrors.IsConflict(err) { // a conflict means that another object has the name now
		return nil
	}
	return fmt.Errorf("delete %s: %w", o.GetName(), err)
}

func metadataList(coreKind string) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(coreKind + "List"))
	return list
}
