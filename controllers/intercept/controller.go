package intercept

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/audit"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/eventlimit"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// pollInterval is how often Stowaway is asked while a request lives.
const pollInterval = time.Second

// Users gives carriers a user that no other agent has.
type Users interface {
	Assign(ctx context.Context, cache client.Reader, namespace string, owner, pod types.UID) (int64, error)
}

// Reconciler handles all InterceptRequests.
type Reconciler struct {
	// Client reads from the cache.
	client.Client
	// Live reads from the API server.
	Live client.Reader
	// PauseConfig reads the ConfigMap of the pause.
	PauseConfig client.Reader
	Options     agentjob.Options
	// Key of the stamps.
	Key []byte
	// Access reviews the requesters' rights. It must not cache; Recent may be a minute old.
	Access, Recent access.Reviews
	Users          Users
	Recorder       events.EventRecorder
	Clock          clock.PassiveClock
	Watchdog       *health.Watchdog
	Stowaway       StowawayClient
	// Limits bound the carriers of a request and of a node, as they bound probes.
	Limits ceiling.Limits

	// began is when the first pass began.
	began time.Time
	// previous has the requests of the last pass, by UID.
	previous map[types.UID]*request
	memory   memory
	// reported is the last error that was logged.
	reported string
}

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=interceptrequests,verbs=list;watch
// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=interceptrequests/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// The right to create is restricted to the name, which suffices because server-side apply is a PATCH.
// +kubebuilder:rbac:groups=apps,namespace=sonde-system,resources=deployments,resourceNames=sonde-stowaway,verbs=create;patch;delete
// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=services,resourceNames=sonde-stowaway,verbs=create;get;patch;delete

// Reconcile makes one pass over all requests.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	defer r.Watchdog.Begin("intercepts")()
	observed, err := r.observe(ctx)
	if err != nil {
		r.log(ctx, err) // not returned, see below
		return ctrl.Result{RequeueAfter: pollInterval}, nil
	}
	planned := planFor(observed, r.Limits, r.Clock.Now())
	if len(planned.nodes) > 0 {
		r.observeNodes(ctx, observed, planned.nodes)
		planned = planFor(observed, r.Limits, r.Clock.Now())
	}
	done, acted := r.act(ctx, observed, planned)
	rest, reported := r.report(ctx, observed, planned, done)
	r.remember(ctx, observed)
	again := planned.again
	if rest > 0 {
		again = sooner(again, rest)
	}
	if err := errors.Join(observed.failed, acted, reported); err != nil {
		// Not returned: controller-runtime would wait longer and longer, also for the requests that work.
		r.log(ctx, err)
		again = sooner(again, pollInterval)
	} else {
		r.reported = ""
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// remember keeps the requests for the next pass, and records the end of those that were deleted.
func (r *Reconciler) remember(ctx context.Context, o *observation) {
	before := r.previous
	r.previous = map[types.UID]*request{}
	for _, q := range o.requests {
		r.previous[q.UID] = q
		delete(before, q.UID)
	}
	for _, gone := range before {
		if gone.Ended() {
			r.transition(ctx, gone) // does nothing if it is recorded
			continue
		}
		gone.updateCounters(o.status)     // act has ended its route since, so they are the last ones
		if gone.Status.Heartbeat != nil { // otherwise its client never connected
			r.event(gone, corev1.EventTypeNormal, string(sondev1.InterceptEnded), "ended, because the InterceptRequest was deleted")
		}
		gone.auditEnd(ctx, "Deleted")
	}
}

// log logs an error, unless it is the last one again: a pass runs every second.
func (r *Reconciler) log(ctx context.Context, err error) {
	if text := err.Error(); text != r.reported && !apierrors.IsConflict(err) {
		r.reported = text
		ctrl.LoggerFrom(ctx).Error(err, "A pass over the InterceptRequests has failed in part, and is repeated")
	}
}

// verify returns who asked for a request.
func (r *Reconciler) verify(q *sondev1.InterceptRequest) (stamp.Claim, error) {
	return stamp.Verify(r.Key, q.Namespace, sondev1.InterceptKind, &q.Spec, q.Annotations, q.CreationTimestamp.Time)
}

// maxUser of the requester's name in an Event, in bytes.
const maxUser = 256

// event records an Event that says who intercepts what. It is the only trace of an intercept in the namespace after its deletion.
func (r *Reconciler) event(q *request, kind, reason, message string) {
	namespace, ref := q.AgentTarget()
	note := fmt.Sprintf("intercept of port %d of %s %s/%s", q.Spec.TargetContainerPort, ref.Kind, namespace, ref.Name)
	if q.requester != "" {
		note += " by " + text.OneLine(q.requester, maxUser)
	}
	r.Recorder.Eventf(q.InterceptRequest, nil, kind, reason, "Intercept", "%s", text.Ellipsis(note+": "+message, eventlimit.MaxNote))
}

// transition records a change of phase, as an Event and in the audit log.
func (r *Reconciler) transition(ctx context.Context, q *request) {
	before, now := q.recorded, q.Status.Phase
	q.recorded = now
	if before == "" && q.requester != "" {
		q.audit(ctx, "Observed new InterceptRequest", audit.RequestAdmitted)
	}
	if now == before || now == sondev1.InterceptPending {
		return
	}
	kind := corev1.EventTypeNormal
	if now == sondev1.InterceptLost || now == sondev1.InterceptFailed {
		kind = corev1.EventTypeWarning
	}
	r.event(q, kind, string(now), summary(q))
	switch now {
	case sondev1.InterceptActive:
		q.audit(ctx, "Intercepting", audit.InterceptActive, "pods", q.podsInStatus())
	case sondev1.InterceptEnded, sondev1.InterceptFailed:
		q.auditEnd(ctx, string(now))
	case sondev1.InterceptPending, sondev1.InterceptLost:
	}
}

// audit writes an audit record.
func (q *request) audit(ctx context.Context, message, action string, more ...any) {
	namespace, ref := q.AgentTarget()
	log := ctrl.LoggerFrom(ctx).WithValues("InterceptRequest", map[string]string{"namespace": q.Namespace, "name": q.Name}, "interceptUID", q.UID,
		"targetNamespace", namespace, "target", string(ref.Kind)+"/"+ref.Name, "port", q.Spec.TargetContainerPort)
	log.Info(message, slices.Concat([]any{audit.Key, action, audit.Requester, q.requester}, more)...)
}

// podsInStatus is how many Pods the status lists or counts.
func (q *request) podsInStatus() int { return len(q.Status.Pods) + int(q.Status.PodsOmitted) }

// auditEnd writes the last record, with the counts of the last status.
func (q *request) auditEnd(ctx context.Context, phase string) {
	all := []*sondev1.InterceptCounters{q.Status.RemovedPods}
	for i := range q.Status.Pods {
		all = append(all, &q.Status.Pods[i].InterceptCounters)
	}
	total := sum(all...)
	q.audit(ctx, "Ended intercept", audit.InterceptEnded, "phase", phase, "pods", q.podsInStatus(), "matched", total.Matched, "passed", total.Passed,
		"bytesToClient", total.BytesToClient, "bytesFromClient", total.BytesFromClient)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
