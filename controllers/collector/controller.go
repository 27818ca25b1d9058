// Package collector keeps one Helm release for each Collector. Helm runs in a Job in the release's namespace (cmd/releaser), at most one
// at a time for a release. The manager creates it where the namespace's admin allows that, and reads its report from the Pod's
// termination message.
//
//	observe.go  what a pass reads
//	record.go   the report of a Job, as it goes into the status
//	plan.go     what follows: pure
//	act.go      what a pass writes
//	places.go   how many Jobs run
//	waiting.go  which Collector runs next
//	orphans.go  releases whose Collector is gone
//	report.go   conditions and Events
//	build.go    the objects
//	setup.go    caches and watches
package collector

import (
	"context"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/audit"
	"github.com/sonde-operator/sonde/internal/operator/eventlimit"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/pass"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// fieldOwner of the status.
const fieldOwner = client.FieldOwner("sonde-collector")

// Rights reviews the right to create Jobs.
type Rights interface {
	ReviewJobs(ctx context.Context, who access.Requester, namespace string) (access.Decision, error)
}

// Reconciler keeps the release of each Collector. No decision about a release depends on state from earlier passes.
type Reconciler struct {
	// Client reads Collectors from the cache, which lacks most of the spec (target.Strip).
	client.Client
	// Own reads the Jobs of Collectors and their Pods from a cache (Cache).
	Own client.Reader
	// Live reads from the API server.
	Live client.Reader
	// PauseConfig reads the ConfigMap of the pause.
	PauseConfig client.Reader
	// Reviews of the requester's rights. It must not cache.
	Reviews Rights
	// Permitted reports whether the operator has a right. An error means that the API server did not answer.
	Permitted func(context.Context, authorizationv1.ResourceAttributes) (bool, error)
	// Key of the stamps.
	Key []byte
	// Namespace of the operator.
	Namespace string
	// Image of the releaser.
	Image    string
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Watchdog *health.Watchdog

	deleted deletedCollectors
	// sweptTo is the namespace of the last orphan that the sweep has looked at. Of the goroutine that sweeps.
	sweptTo string
	places  places
	// enqueue adds a request to the controller's queue.
	enqueue func(reconcile.Request)
}

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=collectors,verbs=get;list;watch
// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=collectors/status,verbs=patch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// The right to create and delete Jobs, ConfigMaps and Secrets is not here: the admin of a namespace gives it there
// (kubectl sonde collector open).

// Reconcile makes one pass over a Collector.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cached := &sondev1.Collector{}
	err := r.Get(ctx, req.NamespacedName, cached) // without most of the spec
	if apierrors.IsNotFound(err) {
		return r.leave(ctx, req.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get Collector: %w", err)
	}
	// An earlier Collector with this name may have left a release in a namespace that is closed now. So an error must not end the pass.
	if err := r.removeDeleted(ctx, req.NamespacedName); err != nil {
		ctrl.LoggerFrom(ctx).Info("Removing an earlier Collector's release failed", "reason", text.Ellipsis(err.Error(), maxText))
	}
	if waits, err := r.waits(ctx, cached); err != nil || waits {
		return ctrl.Result{RequeueAfter: queuedDelay}, err
	}
	c := &sondev1.Collector{}
	if err := r.Live.Get(ctx, req.NamespacedName, c); err != nil {
		if gone.Is(err) { // the cache will show it
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("get Collector: %w", err)
	}
	planned, err := r.pass(ctx, c)
	if err != nil {
		return pass.RequeueOnConflict(ctrl.Result{}, err)
	}
	r.places.settle(cached, planned.queued)
	return ctrl.Result{RequeueAfter: planned.after}, r.callNext(ctx)
}

// leave follows the deletion of a Collector.
func (r *Reconciler) leave(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
	r.places.forget(key)
	if err := r.callNext(ctx); err != nil {
		return ctrl.Result{}, err
	}
	err := r.removeDeleted(ctx, key)
	if apierrors.IsForbidden(err) { // the namespace is closed, and may be opened again
		return ctrl.Result{RequeueAfter: maxClosedDelay}, nil
	}
	return ctrl.Result{}, err
}

// pass follows a Collector as it is.
func (r *Reconciler) pass(ctx context.Context, c *sondev1.Collector) (plan, error) {
	if !c.DeletionTimestamp.IsZero() {
		return plan{}, nil
	}
	before := c.DeepCopy()
	o, err := r.observe(ctx, c)
	if err != nil {
		return plan{}, err
	}
	record(o)
	if err := r.clean(ctx, o); err != nil {
		return plan{}, err // before the status says that the report was read, and before another run starts
	}
	planned := planFor(o)
	if planned.start {
		if planned, err = r.start(ctx, o, planned); err != nil {
			return plan{}, err
		}
	}
	report(o, planned)
	if !equality.Semantic.DeepEqual(before.Status, c.Status) {
		if err := pass.PatchStatus(ctx, r.Client, c, before, &before.Status, &c.Status, fieldOwner); err != nil {
			return plan{}, err
		}
		r.recordEvents(before, c)
		if ended := o.reported; ended != nil {
			last := o.last()
			if last.generation != c.Generation || last.retried != c.Status.Retried { // another user may have asked for it: ReleaseStarted says who
				o.requester = access.Requester{}
			}
			o.audit(ctx, "Read a report of Helm", audit.ReleaseEnded, "job", last.job.Name, "generation", last.generation, "remedy", last.remedy,
				"outcome", ended.Outcome, "reason", ended.Reason, "revision", c.Status.Revision)
		}
	}
	return planned, nil
}

// audit writes an audit record.
func (o *observation) audit(ctx context.Context, message, action string, more ...any) {
	c := o.collector
	log := ctrl.LoggerFrom(ctx).WithValues("Collector", map[string]string{"namespace": c.Namespace, "name": c.Name}, "collectorUID", c.UID,
		"targetNamespace", c.ReleaseNamespace(), "target", c.ReleaseName())
	log.Info(message, slices.Concat([]any{audit.Key, action, audit.Requester, o.requester.Username}, more)...)
}

// recordEvents records the transitions that people look for.
func (r *Reconciler) recordEvents(before, c *sondev1.Collector) {
	for _, kind := range []string{sondev1.ConditionReady, sondev1.ConditionStalled, sondev1.ConditionRemediated} {
		was, is := condition(before, kind), condition(c, kind)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason || is.Status != "True" && kind != sondev1.ConditionReady || is.Status == "Unknown" {
			continue
		}
		level := corev1.EventTypeNormal
		if kind != sondev1.ConditionReady || is.Reason == sondev1.ReasonRetrying {
			level = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(c, nil, level, is.Reason, "Release", "%s", text.Ellipsis(is.Message, eventlimit.MaxNote))
	}
}

// Delays of passes that no watch wakes.
const (
	// queuedDelay before a Collector that waits for a place looks again, if nothing calls it.
	queuedDelay = 5 * time.Minute
	// strayDelay before a Collector looks again whether a Pod or a Job that is in no run has ended.
	strayDelay = 10 * time.Second
	// The operator's right in a namespace is reviewed again after a time that grows with how long it has been missing.
	minClosedDelay = 10 * time.Second
	maxClosedDelay = 2 * time.Minute
	refusedDelay   = 5 * time.Minute
	// anchorDelay before the anchor of a Collector that is being removed is looked at again.
	anchorDelay = 2 * time.Second
)
