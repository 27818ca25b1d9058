package fluentpvc

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/fairqueue"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/pass"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// settle is how long API servers may take to read the webhook configuration, and a second more, because times in the status are
// whole seconds.
const settle = 3 * time.Second

// DefinitionReconciler writes the condition Ready of FluentPVCs: whether new Pods that name one get their volume.
type DefinitionReconciler struct {
	// Client reads FluentPVCs from the cache.
	client.Client
	// Configuration reads the webhook configuration for Pods, from a cache.
	Configuration client.Reader
	// Verify returns an error for a FluentPVC that the webhook for FluentPVCs has not admitted as it is.
	Verify   func(*sondev1.FluentPVC) error
	Clock    clock.PassiveClock
	Watchdog *health.Watchdog
}

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=fluentpvcs/status,verbs=patch

// SetupWithManager watches FluentPVCs and the webhook configuration. configuration is the cache of Configuration.
func (r *DefinitionReconciler) SetupWithManager(mgr ctrl.Manager, configuration cache.Cache) error {
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return r.everything(ctx) })
	changed := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("fluentpvc-definition").
		WithOptions(controller.Options{MaxConcurrentReconciles: definitionWorkers, NewQueue: fairqueue.New(definitionWorkers, r.everything)}).
		For(&sondev1.FluentPVC{}, builder.WithPredicates(changed)).
		WatchesRawSource(source.Kind(configuration, client.Object(&admissionregistrationv1.MutatingWebhookConfiguration{}), all)).
		Complete(r.Watchdog.Watch("fluentpvc definition", r))
}

// definitionWorkers are two, the least that package fairqueue has: FluentPVCs have no namespace, so one works.
const definitionWorkers = 2

// everything wakes all FluentPVCs.
func (r *DefinitionReconciler) everything(ctx context.Context) []reconcile.Request {
	var list sondev1.FluentPVCList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing FluentPVCs failed")
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return requests
}

// Reconcile writes the condition of one FluentPVC.
func (r *DefinitionReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f := &sondev1.FluentPVC{}
	if found, err := read(ctx, r.Client, req.NamespacedName, f); !found || err != nil || !f.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, err
	}
	before := f.DeepCopy()
	ready, err := r.ready(ctx, f)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := r.Clock.Now()
	var wait time.Duration
	if c := apimeta.FindStatusCondition(before.Status.Conditions, ready.Type); ready.Status == metav1.ConditionTrue && (c == nil || c.Status != metav1.ConditionTrue) {
		// Ready turns True when the API servers have read the configuration.
		settling := condition(sondev1.ConditionReady, metav1.ConditionUnknown, sondev1.ReasonWebhookSettling, "the API servers read the webhook configuration now")
		if c == nil || c.Reason != sondev1.ReasonWebhookSettling {
			ready, wait = settling, settle
		} else if wait = c.LastTransitionTime.Add(settle).Sub(now); wait > 0 {
			ready = settling
		}
	}
	ready.ObservedGeneration, ready.LastTransitionTime = f.Generation, metav1.NewTime(now.Truncate(time.Second))
	ready.Message = text.OneLine(ready.Message, maxNote)
	apimeta.SetStatusCondition(&f.Status.Conditions, ready)
	if !equality.Semantic.DeepEqual(before.Status, f.Status) {
		if err := pass.PatchStatus(ctx, r.Client, f, before, &before.Status, &f.Status, fieldOwner); err != nil {
			return pass.RequeueOnConflict(ctrl.Result{}, err)
		}
	}
	return ctrl.Result{RequeueAfter: max(wait, 0)}, nil
}

// ready returns the condition Ready, before the API servers had time to read the configuration.
func (r *DefinitionReconciler) ready(ctx context.Context, f *sondev1.FluentPVC) (metav1.Condition, error) {
	if err := r.Verify(f); err != nil {
		return condition(sondev1.ConditionReady, metav1.ConditionFalse, sondev1.ReasonNotAdmitted,
			fmt.Sprintf("Pods that name this FluentPVC are refused: %v: delete it and create it again", err)), nil
	}
	var c admissionregistrationv1.MutatingWebhookConfiguration
	err := r.Configuration.Get(ctx, client.ObjectKey{Name: gate.ConfigurationName}, &c)
	if client.IgnoreNotFound(err) != nil {
		return metav1.Condition{}, fmt.Errorf("get webhook configuration: %w", err)
	}
	calls := func(w admissionregistrationv1.MutatingWebhook) bool { return w.Name == sidecar.WebhookName }
	if apierrors.IsNotFound(err) || !slices.ContainsFunc(c.Webhooks, calls) {
		return condition(sondev1.ConditionReady, metav1.ConditionFalse, sondev1.ReasonWebhookMissing,
			"the webhook configuration is not there yet: a Pod that is created now gets no volume"), nil
	}
	return condition(sondev1.ConditionReady, metav1.ConditionTrue, sondev1.ReasonConfigured, "new Pods that name this FluentPVC get a volume and the sidecar"), nil
}
