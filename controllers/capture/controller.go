package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// DefaultAccessReviewInterval is how long a running capture goes on at most after its requester lost
// the right.
const DefaultAccessReviewInterval = 5 * time.Minute

// RecentFor is how long the reconciler's Recent reviews may be remembered. It asks again early enough
// for no decision to be in use for longer than interval.
func RecentFor(interval time.Duration) time.Duration { return interval * 3 / 10 }

// refusedDelay is how long a pass waits whose Jobs were refused by the API server.
const refusedDelay = 30 * time.Second

// conflictDelay is how long a pass waits whose view of the capture was behind.
const conflictDelay = 500 * time.Millisecond

// Reconciler keeps one agent Job per Pod of the target of each capture of a kind, for as long as the
// capture lasts and its requester may have it. It holds no state between passes that a decision rests on.
type Reconciler struct {
	// Kind of the captures.
	Kind Kind
	// Client reads from the cache; the cache needs CacheOptions and target.IndexFields.
	client.Client
	// Live reads from the API server what must not be stale, and what is read too seldom to be cached.
	Live client.Reader
	// Switch reads the ConfigMap of the pause. It is a cache of that one object (pause.Cache),
	// whose changes wake all captures.
	Switch  client.Reader
	Options agentjob.Options
	// Ceilings above which Pods and captures wait.
	Ceilings ceiling.Limits
	Stamps   Stamps
	// Access reviews the requester's right before a Job is made; it must remember nothing. Recent
	// does for all other passes, and remembers for RecentFor(AccessReviewInterval), so that a pass
	// that has nothing to do writes nothing; SetupWithManager makes it from Access.
	Access, Recent access.Reviews
	Keepers        Keepers
	Recorder       events.EventRecorder
	Clock          clock.PassiveClock
	Sweeper        *sweep.Sweeper
	// Parallelism is the number of calls that a pass makes at the same time.
	Parallelism int
	// AccessReviewInterval is how often the requester's right is reviewed while nothing else happens.
	AccessReviewInterval time.Duration
	// Watchdog watches each pass.
	Watchdog *health.Watchdog

	// pace is made by SetupWithManager; nil hurries.
	pace *pace
}

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=packetcaptures,verbs=get;list;watch
// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=packetcaptures/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments;replicasets;statefulsets;daemonsets,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=get
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=batch,namespace=sonde-system,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=configmaps;secrets,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=events,verbs=list

// Reconcile is one pass: observe, plan, act, report.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.pace.began(req.NamespacedName)
	capture := r.Kind.New()
	err := r.Get(ctx, req.NamespacedName, capture)
	if apierrors.IsNotFound(err) || err == nil && !capture.GetDeletionTimestamp().IsZero() {
		r.pace.forget(req.NamespacedName)
		return ctrl.Result{}, r.Sweeper.Owner(ctx, r.Kind.Capture.Kind, req.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get %s: %w", r.Kind.Name, err)
	}
	if err := r.ensureJobID(ctx, capture); err != nil {
		return behind(ctrl.Result{}, err)
	}

	seen, todo, err := r.look(ctx, capture)
	if apierrors.IsConflict(err) {
		return behind(ctrl.Result{}, err)
	}
	var done acted
	if err == nil {
		done, err = r.act(ctx, capture, seen, todo)
	}

	before := copyOf(capture)
	report(capture, seen, todo, done, err)
	if !equality.Semantic.DeepEqual(before.CaptureStatus(), capture.CaptureStatus()) {
		if later := r.pace.hold(req.NamespacedName, len(seen.pods)); later > 0 && err == nil && !awaited(before, capture, todo, done) {
			return ctrl.Result{RequeueAfter: sooner(todo.again, later)}, nil
		}
		if perr := r.patchStatus(ctx, capture, before); perr != nil {
			return behind(ctrl.Result{}, errors.Join(err, perr))
		}
		r.pace.wrote(req.NamespacedName)
		r.announce(ctx, before, capture, seen)
	}
	if done.refused() {
		todo.again = min(todo.again, refusedDelay)
	}
	if len(done.lacking) > 0 {
		todo.again = soonest // with an entry that became final by it, the capture may be over
	}
	return ctrl.Result{RequeueAfter: todo.again}, err
}

// look observes and plans. What cannot be taken back is planned on what the API server says, not on a cache that may be
// behind: Jobs, verdicts on probes that left no account, and the capture's end, of which a Job would be no part that
// neither the status nor the cache knows yet.
func (r *Reconciler) look(ctx context.Context, capture sondev1.Capture) (observed, plan, error) {
	seen, err := r.observe(ctx, capture, false)
	if err != nil {
		return seen, plan{}, err
	}
	todo := planFor(capture, seen, r.AccessReviewInterval)
	ends := todo.over && !capture.CaptureStatus().Phase.Final()
	if !ends && !todo.givesUp(seen) {
		return seen, todo, nil
	}
	if seen, err = r.observe(ctx, capture, true); err != nil {
		return seen, plan{}, err
	}
	return seen, planFor(capture, seen, r.AccessReviewInterval), nil
}

// ensureJobID stores the jobId before anything is named by it.
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
			if of := o.Common(); o.GetUID() != capture.GetUID() && of.Target == common.Target {
				inUse[of.JobID], inUse[o.CaptureStatus().JobID] = true, true
			}
		}
		id = naming.JobID(capture.GetUID(), func(id string) bool { return inUse[id] })
	}
	before := copyOf(capture)
	capture.CaptureStatus().JobID = id
	return r.patchStatus(ctx, capture, before)
}

// captures of all kinds in the cache, which are not to be changed.
func (r *Reconciler) captures(ctx context.Context, which ...client.ListOption) ([]sondev1.Capture, error) {
	var captures []sondev1.Capture
	for _, k := range kind.Captures {
		list := k.NewList()
		if err := r.List(ctx, list, append(slices.Clone(which), client.UnsafeDisableDeepCopy)...); err != nil {
			return nil, err
		}
		captures = append(captures, list.Captures()...)
	}
	return captures, nil
}

// copyOf a capture, of the same kind.
func copyOf(capture sondev1.Capture) sondev1.Capture {
	c, _ := capture.DeepCopyObject().(sondev1.Capture)
	return c
}

// patchStatus fails with a conflict when the pass saw an older capture than there is: then what it
// found may be older too.
func (r *Reconciler) patchStatus(ctx context.Context, capture, before sondev1.Capture) error {
	lock := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, capture, lock, r.Kind.fieldOwner()); sweep.IgnoreGone(err) != nil {
		return fmt.Errorf("patch status: %w", err)
	}
	return nil
}

// sooner of two waits, of which zero is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// behind makes a wait of a conflict: the cache will have caught up, and nothing is wrong.
func behind(result ctrl.Result, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return result, err
}
