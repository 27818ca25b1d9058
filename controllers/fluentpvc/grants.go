package fluentpvc

import (
	"context"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
)

// The API server takes the name for resourceNames from the field selector of a list or a watch.
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,resourceNames=sonde-fluentpvc,verbs=list;watch

// grants selects the RoleBindings of "kubectl sonde fluentpvc allow". A namespace has at most one, because all have the same name.
func grants(operatorNamespace string) cache.ByObject {
	return cache.ByObject{
		Field:     fields.OneTermEqualSelector(metav1.ObjectNameField, access.RoleFluentPVC),
		Transform: func(o any) (any, error) { return stripGrant(o, operatorNamespace), nil },
	}
}

// stripGrant keeps of a RoleBinding what it gives the manager. Users can write any number of subjects into one of theirs.
func stripGrant(o any, operatorNamespace string) any {
	b, ok := o.(*rbacv1.RoleBinding)
	if !ok {
		return o
	}
	kept := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name, UID: b.UID, ResourceVersion: b.ResourceVersion}}
	if access.GrantsFluentPVC(b, operatorNamespace) {
		kept.RoleRef, kept.Subjects = b.RoleRef, []rbacv1.Subject{access.ManagerSubject(operatorNamespace)}
	}
	return kept
}

// Granted reports whether the cache has the RoleBinding of "kubectl sonde fluentpvc allow" in a namespace. If not, the manager may still
// have the rights, for example by a RoleBinding of another name.
func (c Cache) Granted(ctx context.Context, namespace string) bool {
	if !c.grants.HasSynced() { // a read would wait for it
		return false
	}
	b := &rbacv1.RoleBinding{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: access.RoleFluentPVC}, b)
	if err != nil && !apierrors.IsNotFound(err) {
		ctrl.LoggerFrom(ctx).Error(err, "Reading a RoleBinding from the cache failed")
	}
	return err == nil && access.GrantsFluentPVC(b, c.operatorNamespace)
}

// grantDelay is how long API servers may take to read a new RoleBinding. A write that they refuse in that time would be tried again
// minutes later.
const grantDelay = time.Second

// granted wakes the bindings that wait for a right, when the admin of their namespace grants it. Nothing wakes them when the right is
// withdrawn: the next write that needs it is refused, and says so.
func (r *Reconciler) granted() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	wake := func(ctx context.Context, b client.Object, q queue) {
		for _, request := range r.notPermitted(ctx, b.GetNamespace()) {
			q.AddAfter(request, grantDelay)
		}
	}
	grants := func(o client.Object) bool {
		b, ok := o.(*rbacv1.RoleBinding)
		return ok && access.GrantsFluentPVC(b, r.Namespace)
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if grants(e.Object) {
				wake(ctx, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if grants(e.ObjectNew) && !grants(e.ObjectOld) {
				wake(ctx, e.ObjectNew, q)
			}
		},
	}
}

// notPermitted returns the bindings of a namespace whose last write was refused because a right was missing.
func (r *Reconciler) notPermitted(ctx context.Context, namespace string) []reconcile.Request {
	return r.bindings(ctx, func(b *sondev1.FluentPVCBinding) bool {
		for i := range b.Status.Conditions {
			if b.Status.Conditions[i].Reason == sondev1.ReasonNotPermitted {
				return true
			}
		}
		return false
	}, client.InNamespace(namespace))
}
