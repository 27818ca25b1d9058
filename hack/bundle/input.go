package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// group of Sonde's kinds. Objects of these in the input are the examples.
const group = "monitoring.openshift.tpg"

// input is one install, sorted by the use of each object in the bundle.
type input struct {
	csv                 operatorsv1alpha1.ClusterServiceVersion
	deployment          appsv1.Deployment
	namespace           *unstructured.Unstructured // the operator's own
	clusterRoles        map[string]rbacv1.ClusterRole
	roles               map[string]rbacv1.Role
	clusterRoleBindings []rbacv1.ClusterRoleBinding
	roleBindings        []rbacv1.RoleBinding
	namespaces          []*unstructured.Unstructured
	crds                []apiextensionsv1.CustomResourceDefinition
	examples            []*unstructured.Unstructured
	scorecard           *unstructured.Unstructured
	objects             []*unstructured.Unstructured // all others, RBAC included
}

// read sorts a stream of YAML documents. It fails if the CSV, the Deployment, the scorecard's configuration or the
// operator's namespace is missing.
func read(stream []byte) (*input, error) {
	in := &input{clusterRoles: map[string]rbacv1.ClusterRole{}, roles: map[string]rbacv1.Role{}}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("decode the manifests: %w", err)
		}
		if len(u.Object) == 0 {
			continue
		}
		if err := in.add(u); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	for _, ns := range in.namespaces {
		if ns.GetName() == in.deployment.Namespace {
			in.namespace = ns
		}
	}
	if in.csv.Name == "" || in.deployment.Name == "" || in.scorecard == nil || in.namespace == nil {
		return nil, errors.New("the ClusterServiceVersion, the Deployment, its Namespace or the scorecard's Configuration is missing: pass kustomize's output of config/manifests")
	}
	return in, nil
}

func (in *input) add(u *unstructured.Unstructured) error {
	if u.GroupVersionKind().Group == group {
		in.examples = append(in.examples, u)
		return nil
	}
	switch u.GetKind() {
	case operatorsv1alpha1.ClusterServiceVersionKind:
		// Strict, or a misspelt field would be left out without an error.
		return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &in.csv, true)
	case "Deployment":
		return into(u, &in.deployment)
	case "Namespace":
		in.namespaces = append(in.namespaces, u)
	case "Configuration":
		in.scorecard = u
	case "CustomResourceDefinition":
		var crd apiextensionsv1.CustomResourceDefinition
		in.objects = append(in.objects, u)
		err := into(u, &crd)
		in.crds = append(in.crds, crd)
		return err
	default:
		in.objects = append(in.objects, u)
		return in.addRBAC(u)
	}
	return nil
}

func (in *input) addRBAC(u *unstructured.Unstructured) error {
	switch u.GetKind() {
	case "ClusterRole":
		var r rbacv1.ClusterRole
		err := into(u, &r)
		in.clusterRoles[r.Name] = r
		return err
	case "Role":
		var r rbacv1.Role
		err := into(u, &r)
		in.roles[r.Name] = r
		return err
	case "ClusterRoleBinding":
		var b rbacv1.ClusterRoleBinding
		err := into(u, &b)
		in.clusterRoleBindings = append(in.clusterRoleBindings, b)
		return err
	case "RoleBinding":
		var b rbacv1.RoleBinding
		err := into(u, &b)
		in.roleBindings = append(in.roleBindings, b)
		return err
	}
	return nil
}

func into(u *unstructured.Unstructured, typed any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed)
}
