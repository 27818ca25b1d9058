package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/pass"
	"github.com/sonde-operator/sonde/internal/operator/podwatch"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// DefaultAccessReviewInterval bounds how long a capture runs after its requester lost the right.
const DefaultAccessReviewInterval = 5 * time.Minute

// RecentFor is how long reviews may be cached, so that no decision is in use for longer than interval.
func RecentFor(interval time.Duration) time.Duration { return interval * 3 / 10 }

// refusedDelay is the delay of the next pass after the API server refused a Job.
const refusedDelay = 30 * time.Second

// Reconciler keeps one agent Job per Pod of the target of each capture of a kind, while the capture lasts and its requester has
// the right. No decision depends on state from earlier passes.
type Reconciler struct {
	// Kind of the captures.
	Kind Kind
	// Client reads from the cache; the cache needs CacheOptions and target.IndexFields.
	client.Client
	// Live reads from the API server what must not be stale, or is read too rarely to be cached.
	Live client.Reader
	// PauseConfig reads the ConfigMap of the pause. If it is a pause.Cache, changes of the ConfigMap wake all captures.
	PauseConfig client.Reader
	// GateConfig reads the webhook configuration for gates. If it is a cache, changes of the configuration wake the captures that
	// wait for it.
	GateConfig client.Reader
	Options    agentjob.Options
	// Ceilings above which Pods and captures wait.
	Ceilings ceiling.Limits
	Stamps   Stamps
	// Key of the manager (stamp.EnsureKey). It seals the manager's keys for keepers.
	Key []byte
	// Access reviews the requester's right before a Job is created. It must not cache.
	Access   access.Reviews
	Keepers  Keepers
	Users    *KeeperUsers
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Sweeper  *sweep.Sweeper
	// Parallelism is the number of calls that a pass makes at the same time.
	Parallelism int
	// AccessReviewInterval is the longest time between two reviews of the requester's right.
	AccessReviewInterval time.Duration
	Watchdog             *health.Watchdog
	// PodWatch knows when Pods were not watched.
	PodWatch *podwatch.Watch

	// SetupWithManager sets these. recent is Access with a cache of RecentFor(AccessReviewInterval), for passes that create no
	// Job, so that most of them write nothing.
	recent   access.Reviews
	throttle *throttle
	// departed Pods, as the watch observed them.
	departed *departedPods
}

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=packetcaptures,verbs=get;list;watch
// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=packetcaptures/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments;replicasets;statefulsets;daemonsets,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=get
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=batch,namespace=sonde-system,resources=jobs,verbs=create;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=configmaps;secrets,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=events,verbs=list

// Reconcile makes one pass over a capture, or cleans up after one that is deleted.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.throttle.passStarted(req.NamespacedName)
	capture := r.Kind.New()
	err := r.Get(ctx, req.NamespacedName, capture)
	if apierrors.IsNotFound(err) || err == nil && !capture.GetDeletionTimestamp().IsZero() {
		r.throttle.forget(req.NamespacedName)
		r.departed.forgetAll(req.NamespacedName)
		return ctrl.Result{}, r.Sweeper.Owner(ctx, r.Kind.Kind, req.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get %s: %w", r.Kind.Name, err)
	}
	if capture, err = r.whole(ctx, capture); capture == nil || err != nil {
		return ctrl.Result{}, err
	}
	return r.pass(ctx, req.NamespacedName, capture)
}

// pass observes, plans, acts and reports.
func (r *Reconciler) pass(ctx context.Context, key types.NamespacedName, capture sondev1.Capture) (ctrl.Result, error) {
	if err := r.ensureJobID(ctx, capture); err != nil {
		return pass.RequeueOnConflict(ctrl.Result{}, err)
	}

	observed, planned, err := r.observeAndPlan(ctx, capture)
	if apierrors.IsConflict(err) {
		return pass.RequeueOnConflict(ctrl.Result{}, err)
	}
	var done actions
	if err == nil {
		done, err = r.act(ctx, capture, observed, planned)
	}

	before := copyOf(capture)
	report(capture, observed, planned, done, err)
	if !equality.Semantic.DeepEqual(before.CaptureStatus(), capture.CaptureStatus()) {
		if later := r.throttle.writeDelay(key, len(observed.pods)); later > 0 && err == nil && !urgent(before, capture, planned, done) {
			return ctrl.Result{RequeueAfter: sooner(planned.again, later)}, nil
		}
		if perr := r.patchStatus(ctx, capture, before); perr != nil {
			return pass.RequeueOnConflict(ctrl.Result{}, errors.Join(err, perr))
		}
		r.throttle.statusWritten(key)
		r.recordEvents(ctx, before, capture, observed)
	}
	if done.refused() {
		planned.again = min(planned.again, refusedDelay)
	}
	if len(done.missing) > 0 {
		planned.again = soonest // missing containers make entries final, so the capture may be over
	}
	return ctrl.Result{RequeueAfter: planned.again}, err
}

// whole returns the capture with all of its status, of which the cache keeps little once the capture has ended. It returns nil if
// such a capture has nothing left to withdraw or to delete.
func (r *Reconciler) whole(ctx context.Context, cached sondev1.Capture) (sondev1.Capture, error) {
	status := cached.CaptureStatus()
	if !status.Phase.Final() {
		return cached, nil
	}
	available := func(e sondev1.PodResult) bool {
		return e.AvailableUntil != nil && r.Clock.Now().Before(e.AvailableUntil.Time)
	}
	if status.ObservedGeneration == cached.GetGeneration() && !slices.ContainsFunc(status.Pods, available) {
		var observed observation
		if err := r.observeOwned(ctx, cached, false, &observed); err != nil || !observed.hasObjects() {
			return nil, err
		}
	}
	capture := r.Kind.New()
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(cached), capture)
	switch {
	case gone.Is(err), err == nil && capture.GetUID() != cached.GetUID():
		return nil, nil // the cache is about to say so
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", r.Kind.Name, err)
	default:
		return capture, nil
	}
}

// observeAndPlan plans on the cache, which may be stale. A plan that ends the capture, judges a probe without an account, or
// withdraws files cannot be undone. Neither can one that starts a capture which no Pod joins later: it would leave out a Pod that
// the cache lacks. So such a plan is made again from the API server's state.
func (r *Reconciler) observeAndPlan(ctx context.Context, capture sondev1.Capture) (observation, plan, error) {
	observed, err := r.observe(ctx, capture, false)
	if err != nil {
		return observed, plan{}, err
	}
	planned := planFor(capture, observed, r.AccessReviewInterval)
	ends := planned.over && !capture.CaptureStatus().Phase.Final()
	if !ends && !planned.withdraws && !planned.startsForGood(capture) && !planned.judgesWithoutAccount(observed) {
		return observed, planned, nil
	}
	if observed, err = r.observe(ctx, capture, true); err != nil {
		return observed, plan{}, err
	}
	return observed, planFor(capture, observed, r.AccessReviewInterval), nil
}

// ensureJobID stores the jobId before any object is named by it.
func (r *Reconciler) ensureJobID(ctx context.Context, capture sondev1.Capture) error {
	if status := capture.CaptureStatus(); status.JobID != "" || status.Phase.Final() {
		return nil
	}
	common := capture.Common()
	id := common.JobID
	if id == "" {
		inUse := map[string]bool{}
		others, err := r.captures(ctx, client.MatchingFields{target.IndexTargetNamespace: common.TargetNamespace})
		if err != nil {
			return fmt.Errorf("list captures of the same target: %w", err)
		}
		for _, o := range others {
			if other := o.Common(); o.GetUID() != capture.GetUID() && other.Target == common.Target {
				inUse[other.JobID], inUse[o.CaptureStatus().JobID] = true, true
			}
		}
		id = naming.JobID(capture.GetUID(), func(id string) bool { return inUse[id] })
	}
	before := copyOf(capture)
	capture.CaptureStatus().JobID = id
	return r.patchStatus(ctx, capture, before)
}

// captures reads the captures of all kinds from the cache. The caller must not change them.
func (r *Reconciler) captures(ctx context.Context, selectors ...client.ListOption) ([]sondev1.Capture, error) {
	var captures []sondev1.Capture
	for _, k := range kind.Captures {
		list := k.NewList()
		if err := r.List(ctx, list, append(slices.Clone(selectors), client.UnsafeDisableDeepCopy)...); err != nil {
			return nil, err
		}
		captures = append(captures, list.Captures()...)
	}
	return captures, nil
}

// copyOf returns a deep copy of a capture.
func copyOf(capture sondev1.Capture) sondev1.Capture {
	c, _ := capture.DeepCopyObject().(sondev1.Capture)
	return c
}

func (r *Reconciler) patchStatus(ctx context.Context, capture, before sondev1.Capture) error {
	return pass.PatchStatus(ctx, r.Client, capture, before, before.CaptureStatus(), capture.CaptureStatus(), r.Kind.fieldOwner())
}

// sooner returns the shorter of two delays; zero means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// earlier returns the earlier of two times; zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
