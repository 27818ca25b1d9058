package main

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// accepted are the kinds in Sonde's bundle. OLM supports all of them (operator-registry v1.65.0,
// pkg/lib/bundle/supported_resources.go). It does not support webhook configurations and SecurityContextConstraints,
// which the operator creates.
var accepted = map[string]bool{
	"ClusterRole": true, "CustomResourceDefinition": true, "PodDisruptionBudget": true, "PriorityClass": true, "Role": true, "RoleBinding": true,
	"Service": true, "ServiceAccount": true,
}

// excluded are kinds of an install by kustomize that a bundle leaves out, because community-operators' pipeline refuses the first
// one, and OLM does not support the second one.
var excluded = map[string]bool{"NetworkPolicy": true, "FlowSchema": true}

// manifests returns the bundle's objects beside the CSV. It fails for a kind that no bundle may hold.
//
// OLM creates the manager's ServiceAccount from the CSV, and a role and a binding from its clusterPermissions. The
// manager's ClusterRole stays in the bundle under its name, without rules. It owns the objects that the operator
// creates, such as the webhook configurations, so that garbage collection deletes them when OLM removes the operator.
//
// The manager's Role and its RoleBinding are objects of the bundle, not permissions of the CSV. For an operator of all
// namespaces, OLM v0 and v1 create a ClusterRole from permissions, and the manager could read the Secrets and Jobs of
// every namespace. In return, the binding has to name the namespace of its ServiceAccount.
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
		if drop[u.GetKind()+"/"+u.GetName()] || excluded[u.GetKind()] {
			continue
		}
		if !accepted[u.GetKind()] {
			return nil, fmt.Errorf("%s %s cannot be in a bundle: let the operator create it, or add the kind to accepted if OLM supports it", u.GetKind(), u.GetName())
		}
		u = u.DeepCopy()
		u.SetNamespace("") // OLM sets the operator's
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

// checkRoleBindings finds bindings that would have no effect in a cluster. OLM sets the namespace of a binding, but not
// of its subjects.
func checkRoleBindings(in *input) error {
	for _, b := range in.roleBindings {
		if _, ok := in.roles[b.RoleRef.Name]; b.RoleRef.Kind == "Role" && !ok {
			return fmt.Errorf("RoleBinding %s: there is no Role %s", b.Name, b.RoleRef.Name)
		}
		for _, s := range b.Subjects {
			if s.Kind == rbacv1.ServiceAccountKind && s.Namespace != in.namespace.GetName() {
				return fmt.Errorf("RoleBinding %s: its subject %s has namespace %q, want the operator's: write %s", b.Name, s.Name, s.Namespace, in.namespace.GetName())
			}
		}
	}
	return nil
}

// ownedByCSV sets the labels that OLM v0 sets on its own ClusterRoles. It finds the ClusterRoles of a deleted
// ClusterServiceVersion by these labels (operator-lifecycle-manager v0.42.0, pkg/controller/operators/olm/operator.go),
// but labels a bundle's own ClusterRoles only on an update.
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
