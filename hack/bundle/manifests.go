package main

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// accepted are the kinds that Sonde puts into a bundle, all of which OLM takes from one (operator-registry v1.65.0,
// pkg/lib/bundle/supported_resources.go, has the list). Webhook configurations and SecurityContextConstraints are not
// among them: the operator makes those.
var accepted = map[string]bool{
	"ClusterRole": true, "CustomResourceDefinition": true, "PodDisruptionBudget": true, "PriorityClass": true, "Role": true, "RoleBinding": true,
	"Service": true, "ServiceAccount": true,
}

// left are kinds that an install by kustomize has and a bundle has not: community-operators' pipeline refuses a bundle
// that holds one.
var left = map[string]bool{"NetworkPolicy": true}

// manifests returns the objects that go beside the CSV. It fails for a kind that no bundle may hold.
//
// OLM makes the manager's ServiceAccount from the CSV, and from its clusterPermissions a role and a binding. The
// ClusterRole stays all the same, under its name and with no rules: it owns what the operator makes, such as the
// webhook configurations, so that garbage collection takes that when OLM removes the operator.
//
// The manager's Role and its RoleBinding go into the bundle as they are, and not into the CSV's permissions: for an
// operator of all namespaces OLM, v0 and v1 alike, makes a ClusterRole of those, by which the manager would hold the
// Secrets and Jobs of every namespace. The price is that the binding names the namespace of its ServiceAccount.
func manifests(in *input, r release) ([]*unstructured.Unstructured, error) {
	if err := checkRoleBindings(in); err != nil {
		return nil, err
	}
	account := in.deployment.Spec.Template.Spec.ServiceAccountName
	drop, anchors := map[string]bool{"ServiceAccount/" + account: true}, map[string]bool{}
	for _, b := range in.clusterRoleBindings {
		drop["ClusterRoleBinding/"+b.Name], anchors[b.RoleRef.Name] = true, true
	}
	var out []*unstructured.Unstructured
	for _, u := range in.objects {
		if drop[u.GetKind()+"/"+u.GetName()] || left[u.GetKind()] {
			continue
		}
		if !accepted[u.GetKind()] {
			return nil, fmt.Errorf("%s %s cannot be in a bundle: let the operator make it, or look whether OLM takes the kind and add it here", u.GetKind(), u.GetName())
		}
		u = u.DeepCopy()
		u.SetNamespace("") // OLM puts it into the operator's
		if u.GetKind() == "ClusterRole" {
			ownedByCSV(u, in, r)
			if anchors[u.GetName()] {
				u.Object["rules"] = []any{}
			}
		}
		out = append(out, u)
	}
	return out, nil
}

// checkRoleBindings finds bindings that would bind nothing once they are in a cluster: OLM sets the namespace of the
// binding itself, never that of its subjects.
func checkRoleBindings(in *input) error {
	for _, b := range in.roleBindings {
		if _, ok := in.roles[b.RoleRef.Name]; b.RoleRef.Kind == "Role" && !ok {
			return fmt.Errorf("RoleBinding %s: there is no Role %s", b.Name, b.RoleRef.Name)
		}
		for _, s := range b.Subjects {
			if s.Kind == rbacv1.ServiceAccountKind && s.Namespace != in.namespace.GetName() {
				return fmt.Errorf("RoleBinding %s: its subject %s is of namespace %q, not of the operator's: write %s", b.Name, s.Name, s.Namespace, in.namespace.GetName())
			}
		}
	}
	return nil
}

// ownedByCSV labels a ClusterRole as OLM v0 labels those that it makes itself. Without the labels it would leave the
// bundle's ClusterRoles behind: it deletes by these when a ClusterServiceVersion goes (operator-lifecycle-manager
// v0.42.0, pkg/controller/operators/olm/operator.go), and sets them only on an update.
func ownedByCSV(u *unstructured.Unstructured, in *input, r release) {
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["olm.owner"] = csvName(in, r)
	labels["olm.owner.kind"] = "ClusterServiceVersion"
	labels["olm.owner.namespace"] = in.namespace.GetName()
	u.SetLabels(labels)
}
