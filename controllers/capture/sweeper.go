package capture

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
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/paging"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// DefaultSweepInterval is how often everything is swept: only what a lost event left behind waits so long.
const DefaultSweepInterval = 10 * time.Minute

// sweepTimeout bounds a sweep of everything: an API server that accepts and never answers must not end sweeping.
const sweepTimeout = 5 * time.Minute

// Sweeper deletes what belongs to no capture any more. There are no finalizers, so that an
// operator that is gone for good holds up no deletion; this is what makes up for them.
type Sweeper struct {
	// Client deletes, and reads from the cache, which needs CacheOptions and target.IndexFields; Live reads from the API
	// server.
	Client   client.Client
	Live     client.Reader
	Clock    clock.WithTicker
	Interval time.Duration
	// Namespace of the operator.
	Namespace string
	// Parallelism is the number of deletions at the same time.
	Parallelism int
	// Watchdog of sweeps of everything; nil watches nothing.
	Watchdog *health.Watchdog

	kinds kindAnswers
}

// NeedLeaderElection makes the manager run Start on the leader alone.
func (s *Sweeper) NeedLeaderElection() bool { return true }

// Start sweeps everything, now and then on a timer, until ctx ends. It implements manager.Runnable.
func (s *Sweeper) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("sweeper")
	ctx = ctrl.LoggerInto(ctx, log)
	ticker := s.Clock.NewTicker(s.Interval)
	defer ticker.Stop()
	for {
		var soon <-chan time.Time
		if err := s.SweepAll(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Sweeping failed, trying again later", "interval", s.Interval.String())
			if errors.Is(err, errKindUnclear) {
				soon = s.Clock.After(kindGoneDelay)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-soon:
		case <-ticker.C():
		}
	}
}

// SweepAll deletes all objects whose capture is gone. What the cache knows is enough to see that nothing is to be
// done, which is asked of nobody; whether a capture is gone, only the API server says.
func (s *Sweeper) SweepAll(ctx context.Context) error {
	defer s.Watchdog.Begin("sweeper")()
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	var errs []error
	for _, k := range kind.Owners {
		errs = append(errs, s.sweepKind(ctx, k))
	}
	return errors.Join(errs...)
}

func (s *Sweeper) sweepKind(ctx context.Context, of kind.Kind) error {
	living, err := s.cached(ctx, of)
	if err != nil {
		return err
	}
	strays, err := straysOf(of, living)
	if err != nil {
		return err
	}
	// The objects before the captures that there are: what is listed now was made for one that the later list has, if it
	// lives.
	objects, err := s.objects(ctx, of, strays, strays)
	if err != nil {
		return err
	}
	if len(objects) == 0 {
		return nil
	}
	alive, err := s.alive(ctx, of)
	if err != nil {
		return err
	}
	return s.deleteAll(ctx, slices.DeleteFunc(objects, func(o *metav1.PartialObjectMetadata) bool { return alive[o.GetLabels()[sondev1.LabelUID]] }))
}

// cached returns the UIDs of the objects of a kind that the cache holds and that are not being deleted.
func (s *Sweeper) cached(ctx context.Context, of kind.Kind) ([]string, error) {
	o, err := s.Client.Scheme().New(sondev1.GroupVersion.WithKind(of.Name + "List"))
	if err != nil {
		return nil, fmt.Errorf("make a list of %ss: %w", of.Name, err)
	}
	list, _ := o.(client.ObjectList)
	if err := s.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !isKindGone(err) {
		return nil, fmt.Errorf("list %ss: %w", of.Name, err)
	}
	var living []string
	err = apimeta.EachListItem(list, func(item runtime.Object) error {
		owner, err := apimeta.Accessor(item)
		if err == nil && owner.GetDeletionTimestamp().IsZero() {
			living = append(living, string(owner.GetUID()))
		}
		return err
	})
	return living, err
}

// straysOf selects what was made for captures of a kind other than the living ones. The cache compares before it
// copies: all objects of thousands of Pods would be most of the manager's memory.
func straysOf(of kind.Kind, living []string) (*client.ListOptions, error) {
	which := []client.ListOption{client.MatchingLabels{sondev1.LabelKind: of.Name}, client.HasLabels{sondev1.LabelUID}}
	if len(living) > 0 {
		others, err := labels.NewRequirement(sondev1.LabelUID, selection.NotIn, living)
		if err != nil {
			return nil, fmt.Errorf("select by capture: %w", err)
		}
		which = slices.Insert(which, 0, client.ListOption(client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*others)}))
	}
	return (&client.ListOptions{}).ApplyOptions(which), nil
}

// alive are the UIDs of the captures of a kind that there are, asked of the API server.
func (s *Sweeper) alive(ctx context.Context, of kind.Kind) (map[string]bool, error) {
	alive := map[string]bool{}
	err := paging.Each(ctx, s.Live, func() *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(sondev1.GroupVersion.WithKind(of.Name + "List"))
		return list
	}, func(captures *metav1.PartialObjectMetadataList) {
		for i := range captures.Items {
			alive[string(captures.Items[i].UID)] = captures.Items[i].DeletionTimestamp.IsZero()
		}
	})
	if err := s.kinds.judge(of.Name, err, s.Clock.Now()); err != nil {
		return nil, fmt.Errorf("list %ss: %w", of.Name, err)
	}
	return alive, nil
}

// Sweep deletes what belongs to a capture of this kind and name that is gone, deleted, or made anew. What the cache does not
// show yet wakes the controller when it does.
func (s *Sweeper) Sweep(ctx context.Context, of kind.Kind, capture types.NamespacedName) error {
	by := client.MatchingFields{target.IndexOwner: capture.Namespace + "/" + capture.Name}
	objects, err := s.objects(ctx, of, by, by)
	if err != nil || len(objects) == 0 {
		return err
	}
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(sondev1.GroupVersion.WithKind(of.Name))
	if err := s.kinds.judge(of.Name, s.Live.Get(ctx, capture, now), s.Clock.Now()); err != nil {
		return fmt.Errorf("get %s: %w", of.Name, err)
	}
	if now.DeletionTimestamp.IsZero() && now.UID != "" {
		objects = slices.DeleteFunc(objects, func(o *metav1.PartialObjectMetadata) bool { return o.Labels[sondev1.LabelUID] == string(now.UID) })
	}
	return s.deleteAll(ctx, objects)
}

// Remove deletes everything that was made for the capture of this kind and UID.
func (s *Sweeper) Remove(ctx context.Context, of kind.Kind, capture types.UID) error {
	objects, err := s.objects(ctx, of, client.MatchingFields{target.IndexCapture: string(capture)}, target.Parts(capture)...)
	if err != nil {
		return err
	}
	return s.deleteAll(ctx, objects)
}

// objects of the operator's namespace that were made for a capture of a kind and are not being deleted, from the cache, with
// what selects its Jobs, part by part, and the others.
func (s *Sweeper) objects(ctx context.Context, of kind.Kind, others client.ListOption, jobs ...client.ListOption) ([]*metav1.PartialObjectMetadata, error) {
	type made struct {
		kind schema.GroupVersionKind
		list client.ObjectList
		by   client.ListOption
	}
	var all []made // probes before what they were told
	for _, by := range jobs {
		all = append(all, made{batchv1.SchemeGroupVersion.WithKind("Job"), &batchv1.JobList{}, by}) // of which there is a cache
	}
	all = append(all, made{corev1.SchemeGroupVersion.WithKind("ConfigMap"), metadataList("ConfigMap"), others},
		made{corev1.SchemeGroupVersion.WithKind("Secret"), metadataList("Secret"), others})
	var objects []*metav1.PartialObjectMetadata
	for _, one := range all {
		gvk, list := one.kind, one.list
		if err := s.Client.List(ctx, list, one.by, client.InNamespace(s.Namespace)); err != nil {
			return nil, fmt.Errorf("list %ss to sweep: %w", gvk.Kind, err)
		}
		err := apimeta.EachListItem(list, func(item runtime.Object) error {
			o, err := apimeta.Accessor(item)
			if err != nil || o.GetLabels()[sondev1.LabelKind] != of.Name || o.GetLabels()[sondev1.LabelUID] == "" || !o.GetDeletionTimestamp().IsZero() {
				return err
			}
			made := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), Labels: o.GetLabels(), Annotations: o.GetAnnotations(),
			}}
			made.SetGroupVersionKind(gvk)
			objects = append(objects, made)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %ss to sweep: %w", gvk.Kind, err)
		}
	}
	return objects, nil
}

func (s *Sweeper) deleteAll(ctx context.Context, objects []*metav1.PartialObjectMetadata) error {
	return errors.Join(inParallel(s.Parallelism, objects, func(o *metav1.PartialObjectMetadata) error {
		ctrl.LoggerFrom(ctx).Info("Deleting what belonged to a capture", "kind", o.Kind, "object", o.Name, "capture", o.Annotations[sondev1.AnnotationOwner])
		return deleteObject(ctx, s.Client, o)
	})...)
}

// deleteObject deletes exactly this object, and what the garbage collector finds below it.
func deleteObject(ctx context.Context, c client.Client, o client.Object) error {
	uid := o.GetUID()
	err := c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
	if err == nil || isGone(err) || apierrors.IsConflict(err) { // conflict: another has its name by now
		return nil
	}
	return fmt.Errorf("delete %s: %w", o.GetName(), err)
}

// metadataOf reads live the metadata of the object that has o's kind and name.
func (r *Reconciler) metadataOf(ctx context.Context, o client.Object) (*metav1.PartialObjectMetadata, error) {
	kind, err := r.GroupVersionKindFor(o)
	if err != nil {
		return nil, fmt.Errorf("find kind of %T: %w", o, err)
	}
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(kind)
	return there, r.Live.Get(ctx, client.ObjectKeyFromObject(o), there)
}

func coreMetadata(kind string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return o
}

func metadataList(coreKind string) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(coreKind + "List"))
	return list
}

// ownerOf an object of the operator's namespace, as the request that its events make.
func ownerOf(o client.Object) (types.NamespacedName, bool) {
	return naming.ParseOwner(o.GetAnnotations()[sondev1.AnnotationOwner])
}
