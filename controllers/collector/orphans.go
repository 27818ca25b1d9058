package collector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
)

// The API server's garbage collector does not remove a release in another namespace than its Collector. The operator does: when the watch
// shows the deletion, and for deletions that no watch has shown, at the start and each orphanInterval.

const (
	// orphanInterval is how often the operator looks for releases without a Collector, and orphanTimeout bounds one look.
	orphanInterval = 10 * time.Minute
	orphanTimeout  = 5 * time.Minute
	// maxOrphans of one namespace, and maxAllOrphans of all, are looked at in one sweep. Users can write Jobs that look like a Collector's,
	// and each takes a request. The cache lists Jobs in a random order, so each has its turn (takeTurns).
	maxOrphans    = 16
	maxAllOrphans = 256
	// maxDeleted Collectors are recorded, at up to 1 KiB each. The sweep finds the releases of others.
	maxDeleted = 1000
)

// deletedCollectors records where the releases of Collectors are that the watch has shown to be deleted. It extends the cache, which has
// only Collectors that exist. Jobs cannot show it: users can write any.
type deletedCollectors struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName][]deletedCollector
	total int
}

type deletedCollector struct {
	uid    types.UID
	anchor client.ObjectKey
	// ran: a Job of it may have made a release.
	ran bool
}

// add records a Collector with a release in another namespace.
func (d *deletedCollectors) add(c *sondev1.Collector) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := client.ObjectKeyFromObject(c)
	if c.Namespace == c.ReleaseNamespace() {
		return // the API server's garbage collector removes it
	}
	if d.total >= maxDeleted || slices.ContainsFunc(d.byKey[key], func(o deletedCollector) bool { return o.uid == c.UID }) {
		return
	}
	if d.byKey == nil {
		d.byKey = map[types.NamespacedName][]deletedCollector{}
	}
	d.byKey[key] = append(d.byKey[key], deletedCollector{c.UID, client.ObjectKey{Namespace: c.ReleaseNamespace(), Name: anchorName(c)}, c.Status.Runs > 0})
	d.total++
}

func (d *deletedCollectors) of(key types.NamespacedName) []deletedCollector {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.byKey[key])
}

func (d *deletedCollectors) remove(key types.NamespacedName, uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := len(d.byKey[key])
	d.byKey[key] = slices.DeleteFunc(d.byKey[key], func(o deletedCollector) bool { return o.uid == uid })
	d.total -= before - len(d.byKey[key])
	if len(d.byKey[key]) == 0 {
		delete(d.byKey, key)
	}
}

func (d *deletedCollectors) requests() []reconcile.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	requests := make([]reconcile.Request, 0, len(d.byKey))
	for key := range d.byKey {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// collectorDeleted records a Collector before it wakes the pass that removes its release.
func (r *Reconciler) collectorDeleted(_ context.Context, e event.DeleteEvent, q queue) {
	if c, ok := e.Object.(*sondev1.Collector); ok {
		r.deleted.add(c)
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
	}
}

// removeDeleted removes the releases of Collectors of a name that were deleted.
func (r *Reconciler) removeDeleted(ctx context.Context, key types.NamespacedName) error {
	var errs []error
	for _, d := range r.deleted.of(key) {
		anchor, err := r.readAnchor(ctx, d.anchor)
		if err == nil && anchor != nil && anchor.Labels[sondev1.LabelUID] == string(d.uid) {
			_, err = r.removeOrphan(ctx, anchor)
		}
		if err != nil && (d.ran || !apierrors.IsForbidden(err)) { // the admin of a closed namespace may open it again
			errs = append(errs, err)
			continue
		}
		r.deleted.remove(key, d.uid)
	}
	return errors.Join(errs...)
}

// orphanSweep is a runnable of the leader.
type orphanSweep struct{ *Reconciler }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (orphanSweep) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (s orphanSweep) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		defer s.Watchdog.Begin("collector orphans")()
		ctx, cancel := context.WithTimeout(ctx, orphanTimeout)
		defer cancel()
		if err := s.removeOrphans(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Removing releases without a Collector failed, trying again later", "interval", orphanInterval.String())
		}
	}, orphanInterval)
	return nil
}

// orphan is an anchor that may have lost its Collector.
type orphan struct {
	client.ObjectKey

	uid types.UID
}

// removeOrphans deletes anchors whose Collector is gone, and with them their releases. Jobs show where they are.
func (r *Reconciler) removeOrphans(ctx context.Context) error {
	found, err := r.orphans(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range found {
		if ctx.Err() != nil {
			break // the next sweep goes on here
		}
		r.sweptTo = o.Namespace
		anchor, err := r.readAnchor(ctx, o.ObjectKey)
		if err == nil && anchor != nil && anchor.UID == o.uid {
			_, err = r.removeOrphan(ctx, anchor)
		}
		errs = append(errs, ignoreForbidden(err)) // the namespace is closed, and may be opened again
	}
	return errors.Join(errs...)
}

// orphans returns the anchors that own Jobs of Collectors which the cache does not have.
func (r *Reconciler) orphans(ctx context.Context) ([]orphan, error) {
	var all sondev1.CollectorList
	if err := r.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Collectors: %w", err)
	}
	exists := map[string]bool{}
	for i := range all.Items {
		exists[string(all.Items[i].UID)] = true
	}
	var jobs batchv1.JobList
	if err := r.Own.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Jobs: %w", err)
	}
	known, in := map[orphan]bool{}, map[string][]orphan{} // by namespace
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if exists[job.Labels[sondev1.LabelUID]] || !job.DeletionTimestamp.IsZero() {
			continue
		}
		for _, owner := range job.OwnerReferences {
			o := orphan{client.ObjectKey{Namespace: job.Namespace, Name: owner.Name}, owner.UID}
			if !isAnchor(owner) || known[o] || len(in[job.Namespace]) == maxOrphans {
				continue
			}
			known[o] = true
			in[job.Namespace] = append(in[job.Namespace], o)
		}
	}
	return r.takeTurns(in), nil
}

// takeTurns returns up to maxAllOrphans, of each namespace in turn. It begins behind the namespace of the last one that was looked at, so
// that no number of Jobs in others keeps a namespace from its turn.
func (r *Reconciler) takeTurns(in map[string][]orphan) (found []orphan) {
	namespaces := slices.Sorted(maps.Keys(in))
	begin, after := slices.BinarySearch(namespaces, r.sweptTo)
	if after {
		begin++
	}
	for round := range maxOrphans {
		for i := range namespaces {
			own := in[namespaces[(begin+i)%len(namespaces)]]
			if round < len(own) && len(found) < maxAllOrphans {
				found = append(found, own[round])
			}
		}
	}
	return found
}

// isAnchor reports whether an owner may be an anchor. The API server does not check the names of owners.
func isAnchor(owner metav1.OwnerReference) bool {
	return owner.APIVersion == "v1" && owner.Kind == "ConfigMap" && strings.HasPrefix(owner.Name, anchorPrefix) &&
		len(validation.IsDNS1123Subdomain(owner.Name)) == 0
}

// readAnchor returns the metadata of an anchor; nil if there is none. A user may have put 1 MiB into one.
func (r *Reconciler) readAnchor(ctx context.Context, key client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
	anchor := &metav1.PartialObjectMetadata{}
	anchor.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	err := r.Live.Get(ctx, key, anchor)
	if gone.Is(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get ConfigMap %s: %w", key.Name, err)
	}
	return anchor, nil
}

// removeOrphan deletes an anchor whose Collector is gone. It asks the API server: the cache may lag behind, and a release would be lost.
func (r *Reconciler) removeOrphan(ctx context.Context, anchor *metav1.PartialObjectMetadata) (removed bool, err error) {
	key, ok := naming.ParseOwner(anchor.Annotations[sondev1.AnnotationOwner])
	if !ok || anchor.Labels[sondev1.LabelKind] != sondev1.CollectorKind {
		return false, nil // a user's
	}
	owner := &metav1.PartialObjectMetadata{}
	owner.SetGroupVersionKind(sondev1.GroupVersion.WithKind(sondev1.CollectorKind))
	err = r.Live.Get(ctx, key, owner)
	switch {
	case err == nil && string(owner.UID) == anchor.Labels[sondev1.LabelUID]:
		return false, nil
	case gone.Ignore(err) != nil:
		return false, fmt.Errorf("get Collector %s: %w", key, err)
	}
	return true, sweep.Delete(ctx, r.Client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: anchor.Namespace, Name: anchor.Name, UID: anchor.UID}})
}

// ignoreForbidden drops a refusal. The admin of the namespace has closed it, so what is there stays.
func ignoreForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
