package platform

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/platform"
)

const platformOwner = client.FieldOwner("sonde-platform")

// ObjectReconciler keeps one object of an API that only some clusters have as it was built: applied
// at start, and again when somebody changes or deletes it. Like every controller it runs in the leader
// alone.
type ObjectReconciler struct {
	// Client watches through a cache that is made with platform.CacheByObject; what is unstructured it
	// reads live, so that what is compared is never stale.
	client.Client
	// Live reads the owner.
	Live client.Reader
	// Desired is the object without its owner.
	Desired *unstructured.Unstructured
	// Watchdog records each pass.
	Watchdog *health.Watchdog
}

// The right to delete these objects is not used: OpenShift's OwnerReferencesPermissionEnforcement asks
// for it before it lets anybody set an owner on an object that exists. The right to create is bound to the
// names, which suffices because server-side apply is a PATCH.

// SetupWithManager watches the one object; the first look needs no event of it.
func (r *ObjectReconciler) SetupWithManager(mgr ctrl.Manager) error {
	first := make(chan event.GenericEvent, 1)
	first <- event.GenericEvent{Object: r.Desired}
	name := "platform-" + strings.ToLower(r.Desired.GetKind())
	return ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(r.empty()).
		WatchesRawSource(source.Channel(first, &handler.EnqueueRequestForObject{})).
		Complete(r.Watchdog.Watch(name, r))
}

// Reconcile applies the object unless it is already there.
func (r *ObjectReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.NamespacedName != client.ObjectKeyFromObject(r.Desired) {
		return ctrl.Result{}, nil
	}
	what := r.Desired.GetKind() + "/" + r.Desired.GetName()
	owner, err := platform.Owner(ctx, r.Live, what)
	if err != nil {
		return ctrl.Result{}, err
	}
	desired := r.Desired.DeepCopy()
	desired.SetOwnerReferences(platform.References(owner))
	live := r.empty()
	err = r.Get(ctx, req.NamespacedName, live)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get %s: %w", what, err)
	}
	if err == nil && platform.Covers(desired, live) {
		return ctrl.Result{}, nil
	}
	ctrl.LoggerFrom(ctx).Info("Applying", "object", what)
	if err := r.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), platformOwner, client.ForceOwnership); err != nil {
		return ctrl.Result{}, fmt.Errorf("apply %s: %w", what, err)
	}
	return ctrl.Result{}, nil
}

// empty is an object of this kind.
func (r *ObjectReconciler) empty() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(r.Desired.GroupVersionKind())
	return u
}
