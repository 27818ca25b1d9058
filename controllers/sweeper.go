package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/health"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/pages"
)

// DefaultSweepInterval is how often everything is swept: only what a lost event left behind waits so long.
const DefaultSweepInterval = 10 * time.Minute

// sweepTimeout bounds a sweep of everything: an API server that accepts and never answers must not end sweeping.
const sweepTimeout = 5 * time.Minute

// Sweeper deletes what belongs to no PacketCapture any more. There are no finalizers, so that an
// operator that is gone for good holds up no deletion; this is what makes up for them.
type Sweeper struct {
	// Client deletes; Live reads from the API server.
	Client   client.Client
	Live     client.Reader
	Clock    clock.WithTicker
	Interval time.Duration
	// Namespace of the operator.
	Namespace string
	// Watchdog of sweeps of everything; nil watches nothing.
	Watchdog *health.Watchdog
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
		if err := s.SweepAll(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Sweeping failed, trying again later", "interval", s.Interval.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// SweepAll deletes all objects whose capture is gone.
func (s *Sweeper) SweepAll(ctx context.Context) error {
	defer s.Watchdog.Begin("sweeper")()
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	// The objects first: what is listed now was made for a capture that the later list has, if it lives.
	objects, err := s.objects(ctx, client.MatchingLabels{sondev1.LabelKind: agentjob.Kind}, client.HasLabels{sondev1.LabelUID})
	if err != nil || len(objects) == 0 {
		return err
	}
	alive := map[string]bool{}
	err = pages.Each(ctx, s.Live, func() *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(sondev1.GroupVersion.WithKind(agentjob.Kind + "List"))
		return list
	}, func(captures *metav1.PartialObjectMetadataList) {
		for i := range captures.Items {
			alive[string(captures.Items[i].UID)] = captures.Items[i].DeletionTimestamp.IsZero()
		}
	})
	if err != nil && !isKindGone(err) {
		return fmt.Errorf("list packet captures: %w", err)
	}
	return s.deleteAll(ctx, objects, func(o client.Object) bool { return !alive[o.GetLabels()[sondev1.LabelUID]] })
}

// Sweep deletes what belongs to a capture of this name that is gone, deleted, or made anew.
func (s *Sweeper) Sweep(ctx context.Context, capture types.NamespacedName) error {
	objects, err := s.objects(ctx, client.MatchingLabels{sondev1.LabelKind: agentjob.Kind}, client.HasLabels{sondev1.LabelUID})
	if err != nil {
		return err
	}
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(sondev1.GroupVersion.WithKind(agentjob.Kind))
	if err := s.Live.Get(ctx, capture, now); err != nil && !isKindGone(err) {
		return fmt.Errorf("get packet capture: %w", err)
	}
	alive := ""
	if now.DeletionTimestamp.IsZero() {
		alive = string(now.UID) // empty if there is none
	}
	owner := capture.Namespace + "/" + capture.Name
	return s.deleteAll(ctx, objects, func(o client.Object) bool {
		return o.GetAnnotations()[sondev1.AnnotationOwner] == owner && o.GetLabels()[sondev1.LabelUID] != alive
	})
}

// Remove deletes everything that was made for the capture with this UID.
func (s *Sweeper) Remove(ctx context.Context, capture types.UID) error {
	objects, err := s.objects(ctx, client.MatchingLabels{sondev1.LabelKind: agentjob.Kind, sondev1.LabelUID: string(capture)})
	if err != nil {
		return err
	}
	return s.deleteAll(ctx, objects, func(client.Object) bool { return true })
}

// objects of the operator's namespace, by metadata; read live, because what was made a moment ago counts too.
func (s *Sweeper) objects(ctx context.Context, selectors ...client.ListOption) ([]*metav1.PartialObjectMetadata, error) {
	var objects []*metav1.PartialObjectMetadata
	for _, kind := range []schema.GroupVersionKind{
		batchv1.SchemeGroupVersion.WithKind("Job"), corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret"),
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := s.Live.List(ctx, list, append(selectors, client.InNamespace(s.Namespace))...); err != nil {
			return nil, fmt.Errorf("list %ss to sweep: %w", kind.Kind, err)
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(kind)
			objects = append(objects, &list.Items[i])
		}
	}
	return objects, nil
}

func (s *Sweeper) deleteAll(ctx context.Context, objects []*metav1.PartialObjectMetadata, orphan func(client.Object) bool) error {
	var errs []error
	for _, o := range objects {
		if !orphan(o) || !o.DeletionTimestamp.IsZero() {
			continue
		}
		ctrl.LoggerFrom(ctx).Info("Deleting what belonged to a capture", "kind", o.Kind, "object", o.Name, "capture", o.Annotations[sondev1.AnnotationOwner])
		errs = append(errs, deleteObject(ctx, s.Client, o))
	}
	return errors.Join(errs...)
}

// deleteObject deletes exactly this object, and what the garbage collector finds below it.
func deleteObject(ctx context.Context, c client.Client, o client.Object) error {
	uid := o.GetUID()
	err := c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // conflict: another has its name by now
		return nil
	}
	return fmt.Errorf("delete %s: %w", o.GetName(), err)
}

// isKindGone: the object is not there, or not even its kind.
func isKindGone(err error) bool { return apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) }

// metadataOf reads live the metadata of the object that has o's kind and name.
func (r *PacketCaptureReconciler) metadataOf(ctx context.Context, o client.Object) (*metav1.PartialObjectMetadata, error) {
	kind, err := r.GroupVersionKindFor(o)
	if err != nil {
		return nil, fmt.Errorf("find kind of %T: %w", o, err)
	}
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(kind)
	return there, r.Live.Get(ctx, client.ObjectKeyFromObject(o), there)
}

func namespaceMetadata() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
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
