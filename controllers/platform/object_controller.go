package platform

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/platform"
)

const objectOwner = client.FieldOwner("sonde-platform")

// ObjectReconciler applies one object of an API that not every cluster has: at start, and when someone changes or
// deletes it.
type ObjectReconciler struct {
	// Client reads unstructured objects without a cache, so that a pass never compares with a stale object.
	client.Client
	// Live reads the owner.
	Live client.Reader
	// Desired is the object without its owner.
	Desired *unstructured.Unstructured
	// Watchdog records each pass.
	Watchdog *health.Watchdog
}

// The operator never deletes these objects. It has the right to, because OpenShift's OwnerReferencesPermissionEnforcement
// requires it for setting an owner on an existing object. The right to create is restricted to the names, which suffices
// because server-side apply is a PATCH.

// SetupWithManager adds the controller and triggers its first pass. The object has a cache of its own: one cache can list only one object
// of a kind by name.
func (r *ObjectReconciler) SetupWithManager(mgr ctrl.Manager) error {
	only, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ByObject: platform.CacheOnly(r.Desired),
	})
	if err != nil {
		return fmt.Errorf("create the cache of %s %s: %w", r.Desired.GetKind(), r.Desired.GetName(), err)
	}
	if err := mgr.Add(standbyCache{only}); err != nil {
		return fmt.Errorf("add the cache of %s %s: %w", r.Desired.GetKind(), r.Desired.GetName(), err)
	}
	first := make(chan event.GenericEvent, 1)
	first <- event.GenericEvent{Object: r.Desired}
	name := "platform-" + strings.ToLower(r.Desired.GetKind()) + "-" + r.Desired.GetName()
	enqueue := &handler.EnqueueRequestForObject{}
	return ctrl.NewControllerManagedBy(mgr).
		Named(name).
		WatchesRawSource(source.Kind[client.Object](only, r.empty(), enqueue)).
		WatchesRawSource(source.Channel(first, enqueue)).
		Complete(r.Watchdog.Watch(name, r))
}

// Reconcile applies the object if the live one differs.
func (r *ObjectReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.NamespacedName != client.ObjectKeyFromObject(r.Desired) {
		return ctrl.Result{}, nil
	}
	object := r.Desired.GetKind() + "/" + r.Desired.GetName()
	owner, err := platform.Owner(ctx, r.Live, object)
	if err != nil {
		return ctrl.Result{}, err
	}
	desired := r.Desired.DeepCopy()
	desired.SetOwnerReferences(platform.OwnerReferences(owner))
	live := r.empty()
	err = r.Get(ctx, req.NamespacedName, live)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get %s: %w", object, err)
	}
	if err == nil && platform.Covers(desired, live) {
		return ctrl.Result{}, nil
	}
	ctrl.LoggerFrom(ctx).Info("Applying", "object", object)
	if err := r.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), objectOwner, client.ForceOwnership); err != nil {
		return ctrl.Result{}, fmt.Errorf("apply %s: %w", object, err)
	}
	return ctrl.Result{}, nil
}

// empty returns an object of the kind without content.
func (r *ObjectReconciler) empty() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(r.Desired.GroupVersionKind())
	return u
}
