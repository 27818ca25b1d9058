// Package collector opens and closes a namespace for Collectors, with the rights of its admin.
package collector

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/gone"
)

const (
	// Releaser is the ServiceAccount that runs Helm, and the name of its Role and RoleBinding.
	Releaser = "sonde-releaser"
	// Monitoring is the name of the releaser's optional Role and RoleBinding for the kinds of the Prometheus operator.
	Monitoring = "sonde-releaser-monitoring"
	// Manager is the name of the operator's ClusterRole, which is installed with it, and of the RoleBinding to it.
	Manager = "sonde-collector"
)

// Namespace is a namespace that may have the releases of Collectors.
type Namespace struct {
	Client client.Client
	// Name of the namespace, and Operator, the operator's namespace.
	Name, Operator string
}

// Open gives the operator the right to run the releaser, and the releaser the rights that charts need. It reports each object and
// whether it was created, changed or found as it should be.
func (n Namespace) Open(ctx context.Context, report func(o client.Object, done string)) error {
	if err := n.checkOperator(ctx); err != nil {
		return err
	}
	skipped := false
	for _, o := range n.objects() {
		if skipped && o.GetName() == Monitoring {
			continue
		}
		done, err := n.apply(ctx, o)
		if o.GetName() == Monitoring && apierrors.IsForbidden(err) {
			report(o, "skipped: you may not give rights on servicemonitors. Turn them off in the chart's values, or ask an admin of the cluster to run this command")
			skipped = true
			continue
		}
		if err != nil {
			return n.explain("create "+KindOf(o)+" "+o.GetName(), err)
		}
		report(o, done)
	}
	return nil
}

// Close deletes what Open has created. Releases stay, and nothing changes them any more.
func (n Namespace) Close(ctx context.Context, report func(o client.Object, done string)) error {
	objects := n.objects()
	for i := range objects {
		o := objects[len(objects)-1-i]
		err := n.Client.Delete(ctx, o)
		switch {
		case gone.Is(err):
			report(o, "not found")
		case err != nil:
			return n.explain("delete "+KindOf(o)+" "+o.GetName(), err)
		default:
			report(o, "deleted")
		}
	}
	return nil
}

// apply creates an object, or gives it the rules and subjects that it should have.
func (n Namespace) apply(ctx context.Context, o client.Object) (string, error) {
	err := n.Client.Create(ctx, o)
	if err == nil {
		return "created", nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	key := client.ObjectKeyFromObject(o)
	switch want := o.(type) {
	case *rbacv1.Role:
		var is rbacv1.Role
		if err := n.Client.Get(ctx, key, &is); err != nil {
			return "", err
		}
		if equality.Semantic.DeepEqual(is.Rules, want.Rules) {
			return "unchanged", nil
		}
		is.Rules = want.Rules
		return "changed", n.Client.Update(ctx, &is)
	case *rbacv1.RoleBinding:
		var is rbacv1.RoleBinding
		if err := n.Client.Get(ctx, key, &is); err != nil {
			return "", err
		}
		if is.RoleRef != want.RoleRef {
			return "", fmt.Errorf("it gives %s %s: delete it, and run the command again", is.RoleRef.Kind, is.RoleRef.Name)
		}
		if equality.Semantic.DeepEqual(is.Subjects, want.Subjects) {
			return "unchanged", nil
		}
		is.Subjects = want.Subjects
		return "changed", n.Client.Update(ctx, &is)
	}
	return "unchanged", nil
}

// objects returns what a namespace needs, in the order in which it is created.
func (n Namespace) objects() []client.Object {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: n.Name, Name: name} }
	releaser := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: n.Name, Name: Releaser}
	bind := func(kind, name string, subject rbacv1.Subject) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: meta(name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}, Subjects: []rbacv1.Subject{subject}}
	}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta(Releaser)},
		&rbacv1.Role{ObjectMeta: meta(Releaser), Rules: releaserRules()},
		bind("Role", Releaser, releaser),
		&rbacv1.Role{ObjectMeta: meta(Monitoring), Rules: []rbacv1.PolicyRule{monitoringRule()}},
		bind("Role", Monitoring, releaser),
		// A Role of the namespace would outlive the operator. Whoever created a ServiceAccount of the manager's name later would have it.
		bind("ClusterRole", Manager, n.manager()),
	}
}

// releaserRules are the rights that charts usually need, each of which the ClusterRole admin has. A chart with objects of other kinds
// needs another Role.
func releaserRules() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	all := append([]string{"create", "update", "patch", "delete"}, read...)
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets", "services", "serviceaccounts", "persistentvolumeclaims"}, Verbs: all},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments", "statefulsets", "daemonsets"}, Verbs: all},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs", "cronjobs"}, Verbs: all},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies", "ingresses"}, Verbs: all},
		{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: all},
		{APIGroups: []string{"autoscaling"}, Resources: []string{"horizontalpodautoscalers"}, Verbs: all},
		// It waits until these are ready.
		{APIGroups: []string{""}, Resources: []string{"pods", "events"}, Verbs: read},
		{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: read},
	}
}

// monitoringRule is for the kinds of the Prometheus operator, which only some clusters have and whose rights only some admins have.
func monitoringRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"monitoring.coreos.com"}, Resources: []string{"servicemonitors", "podmonitors", "prometheusrules"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
	}
}

func (n Namespace) manager() rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: n.Operator, Name: agentjob.ManagerServiceAccount}
}

// checkOperator keeps users from giving rights to a ServiceAccount that anyone could create later. Most users may not read it, and then
// the name stands as it is.
func (n Namespace) checkOperator(ctx context.Context) error {
	account := n.manager()
	err := n.Client.Get(ctx, client.ObjectKey{Namespace: account.Namespace, Name: account.Name}, &corev1.ServiceAccount{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no ServiceAccount %s in namespace %s: Sonde is not installed on this cluster, or in another namespace. Name it with --operator-namespace", account.Name, account.Namespace)
	}
	return nil
}

// explain adds the next step to an error. It does not wrap the API server's status, because the plugin would print nothing else.
func (n Namespace) explain(act string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s: %s\nAsk an admin of namespace %s to run the command: it needs the rights that it gives", act, err.Error(), n.Name)
	}
	if gone.IsKind(err) { // the plugin would say that Sonde's kinds are missing
		return fmt.Errorf("%s: %s", act, err.Error())
	}
	return fmt.Errorf("%s: %w", act, err)
}

// KindOf names the kind of an object that Open creates, in lower case.
func KindOf(o client.Object) string {
	switch o.(type) {
	case *corev1.ServiceAccount:
		return "serviceaccount"
	case *rbacv1.Role:
		return "role"
	default:
		return "rolebinding"
	}
}
