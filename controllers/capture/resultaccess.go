package capture

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/fairqueue"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
)

// ResultAccessReconciler deletes ResultAccesses that have expired. The results endpoint refuses them anyway;
// this only cleans up.
type ResultAccessReconciler struct {
	client.Client
	Clock    clock.PassiveClock
	Watchdog *health.Watchdog
}

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=resultaccesses,verbs=list;watch;delete

// Reconcile deletes the ResultAccess once it has expired.
func (r *ResultAccessReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var access sondev1.ResultAccess
	if err := r.Get(ctx, req.NamespacedName, &access); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !access.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	expires := access.CreationTimestamp.Add(time.Duration(access.Spec.ExpirationSeconds) * time.Second)
	if left := expires.Sub(r.Clock.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if err := sweep.Delete(ctx, r.Client, &access); err != nil {
		return ctrl.Result{}, fmt.Errorf("delete expired result access: %w", err)
	}
	return ctrl.Result{}, nil
}

// accessWorkers delete ResultAccesses at the same time. One namespace gets one of them.
const accessWorkers = 2

// everything wakes all ResultAccesses.
func (r *ResultAccessReconciler) everything(ctx context.Context) []reconcile.Request {
	var list sondev1.ResultAccessList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing result accesses failed")
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return requests
}

// SetupWithManager watches ResultAccesses; their spec never changes.
func (r *ResultAccessReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("resultaccess").
		WithOptions(controller.Options{MaxConcurrentReconciles: accessWorkers, NewQueue: fairqueue.New(accessWorkers, r.everything)}).
		For(&sondev1.ResultAccess{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r.Watchdog.Watch("resultaccess", r))
}
