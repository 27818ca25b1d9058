package fluentpvc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/gone"
)

// Role is the name of the ClusterRole that the operator needs in a namespace, and of the RoleBinding there.
const Role = "sonde-fluentpvc"

// Namespace is a namespace whose Pods may have FluentPVCs.
type Namespace struct {
	Client client.Client
	// Name of the namespace, and Operator, the operator's namespace.
	Name, Operator string
}

// Allow binds the role to the operator. changed is false if the operator had it already.
func (n Namespace) Allow(ctx context.Context) (changed bool, err error) {
	if err := n.checkOperator(ctx); err != nil {
		return false, err
	}
	binding := n.binding()
	err = n.Client.Get(ctx, client.ObjectKeyFromObject(binding), binding)
	switch {
	case apierrors.IsNotFound(err):
		return true, n.explain("create the RoleBinding", n.Client.Create(ctx, n.binding()))
	case err != nil:
		return false, n.explain("get the RoleBinding", err)
	case binding.RoleRef != n.binding().RoleRef:
		return false, fmt.Errorf("the RoleBinding %s in namespace %s gives %s %s: delete it, and run the command again", Role, n.Name, binding.RoleRef.Kind, binding.RoleRef.Name)
	case slices.Contains(binding.Subjects, n.subject()):
		return false, nil
	}
	binding.Subjects = append(binding.Subjects, n.subject())
	return true, n.explain("update the RoleBinding", n.Client.Update(ctx, binding))
}

// Disallow deletes the RoleBinding. existed is false if there was none. left is the number of volumes that the operator
// can no longer process, and -1 if the user may not list them.
func (n Namespace) Disallow(ctx context.Context) (existed bool, left int, err error) {
	err = n.Client.Delete(ctx, n.binding())
	if gone.Ignore(err) != nil {
		return false, 0, n.explain("delete the RoleBinding", err)
	}
	var bindings sondev1.FluentPVCBindingList
	left = -1
	if n.Client.List(ctx, &bindings, client.InNamespace(n.Name)) == nil {
		left = len(bindings.Items)
	}
	return err == nil, left, nil
}

func (n Namespace) binding() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Name, Name: Role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: Role},
		Subjects:   []rbacv1.Subject{n.subject()},
	}
}

func (n Namespace) subject() rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: n.Operator, Name: agentjob.ManagerServiceAccount}
}

// checkOperator keeps users from giving rights to a ServiceAccount that anyone could create later. Most users may not read
// it, and then the name stands as it is.
func (n Namespace) checkOperator(ctx context.Context) error {
	account := n.subject()
	err := n.Client.Get(ctx, client.ObjectKey{Namespace: account.Namespace, Name: account.Name}, &corev1.ServiceAccount{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no ServiceAccount %s in namespace %s: Sonde is not installed on this cluster, or in another namespace. Name it with --operator-namespace", account.Name, account.Namespace)
	}
	return nil
}

// explain adds the next step to an error about the RoleBinding. It does not wrap the API server's status, because the
// plugin would print nothing else.
func (n Namespace) explain(act string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: %s\nAsk an admin of namespace %s to run the command: it needs rights on rolebindings, and the rights that the ClusterRole %s gives", act, err.Error(), n.Name, Role)
	case apierrors.IsNotFound(err) && notFound(err) == "clusterroles":
		return fmt.Errorf("%s: %s: the operator is older than this plugin, or it is not installed", act, err.Error())
	case gone.IsKind(err): // the plugin would say that Sonde's kinds are missing
		return fmt.Errorf("%s: %s", act, err.Error())
	}
	return fmt.Errorf("%s: %w", act, err)
}

// notFound returns the resource that an error of the API server misses.
func notFound(err error) string {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && status.ErrStatus.Details != nil {
		return status.ErrStatus.Details.Kind
	}
	return ""
}
