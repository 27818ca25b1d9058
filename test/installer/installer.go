// Package installer computes the rights that OLM v1 needs to install a bundle. OLM v1 has none of its own: the cluster
// admin grants them to the ServiceAccount that a ClusterExtension names.
package installer

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

const (
	namespace = "sonde-system"
	name      = "sonde-installer"
	extension = "sonde" // the ClusterExtension
)

// contents of a bundle: the names of its objects by resource, and the rights that it grants.
type contents struct {
	cluster, namespaced map[schema.GroupResource][]string
	grants              []rbacv1.PolicyRule
	namespacedGrants    []rbacv1.PolicyRule
}

// Manifests returns the ServiceAccount, its roles and bindings for the bundle in dir, as YAML.
func Manifests(dir string) ([]byte, error) {
	c, err := read(dir)
	if err != nil {
		return nil, err
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}}
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	everywhere := metav1.ObjectMeta{Name: name}
	objects := []any{
		corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta},
		rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: everywhere, Rules: append(c.clusterRules(), c.grants...)},
		rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: everywhere, Subjects: subjects, RoleRef: roleRef("ClusterRole")},
		rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: meta, Rules: append(manage(c.namespaced), c.namespacedGrants...)},
		rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: roleRef("Role")},
	}
	var out bytes.Buffer
	for i, o := range objects {
		b, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("write the installer's rights: %w", err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(bytes.ReplaceAll(b, []byte("  creationTimestamp: null\n"), nil))
	}
	return out.Bytes(), nil
}

func kind(k string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: k}
}

func roleRef(k string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: k, Name: name}
}

// clusterRules are for objects without a namespace. OLM v1 creates a ClusterRole and a binding for each of the CSV's
// permissions, under names that it computes, so no rule can list those names. The rights in them are bounded all the
// same: the API server lets no one grant a right that they do not have.
func (c *contents) clusterRules() []rbacv1.PolicyRule {
	byName := maps.Clone(c.cluster)
	delete(byName, schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"})
	return append([]rbacv1.PolicyRule{
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles", "clusterrolebindings"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
		// OpenShift's API server requires it of those who set an owner that blocks deletion.
		{APIGroups: []string{"olm.operatorframework.io"}, Resources: []string{"clusterextensions/finalizers"}, ResourceNames: []string{extension}, Verbs: []string{"update"}},
	}, manage(byName)...)
}

// manage returns the rules to create these objects and to keep them. Only requests for one object that exists can be
// restricted to names.
func manage(objects map[schema.GroupResource][]string) []rbacv1.PolicyRule {
	byName := func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }
	var rules []rbacv1.PolicyRule
	for _, gr := range slices.SortedFunc(maps.Keys(objects), byName) {
		names := slices.Sorted(slices.Values(objects[gr]))
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{gr.Group}, Resources: []string{gr.Resource}, Verbs: []string{"create", "list", "watch"}},
			rbacv1.PolicyRule{APIGroups: []string{gr.Group}, Resources: []string{gr.Resource}, ResourceNames: slices.Compact(names), Verbs: []string{"get", "update", "patch", "delete"}},
		)
	}
	return rules
}

// read reads the manifests of a bundle.
func read(dir string) (*contents, error) {
	files, err := filepath.Glob(filepath.Join(dir, "manifests", "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no manifests in %s: name the directory of a bundle (%w)", dir, err)
	}
	c := &contents{cluster: map[schema.GroupResource][]string{}, namespaced: map[schema.GroupResource][]string{}}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("read the bundle: %w", err)
		}
		var u unstructured.Unstructured
		if err := yaml.Unmarshal(b, &u.Object); err != nil {
			return nil, fmt.Errorf("read %s: %w", f, err)
		}
		if err := c.add(&u); err != nil {
			return nil, fmt.Errorf("read %s: %w", f, err)
		}
	}
	return c, nil
}

// global are the kinds in bundles whose objects have no namespace.
var global = map[string]bool{"ClusterRole": true, "ClusterRoleBinding": true, "CustomResourceDefinition": true, "PriorityClass": true}

func (c *contents) add(u *unstructured.Unstructured) error {
	switch u.GetKind() {
	case "ClusterServiceVersion":
		return c.addCSV(u)
	case "ClusterRole":
		var r rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &r); err != nil {
			return err
		}
		c.grants = append(c.grants, r.Rules...)
	case "Role":
		var r rbacv1.Role
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &r); err != nil {
			return err
		}
		c.namespacedGrants = append(c.namespacedGrants, r.Rules...)
	}
	gvr, _ := apimeta.UnsafeGuessKindToResource(u.GroupVersionKind())
	into := c.namespaced
	if global[u.GetKind()] {
		into = c.cluster
	}
	into[gvr.GroupResource()] = append(into[gvr.GroupResource()], u.GetName())
	return nil
}

// addCSV adds the objects that OLM creates from a ClusterServiceVersion: the Deployment, the ServiceAccount and
// ClusterRoles with all permissions, because this operator watches all namespaces.
func (c *contents) addCSV(u *unstructured.Unstructured) error {
	var csv operatorsv1alpha1.ClusterServiceVersion
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &csv); err != nil {
		return err
	}
	install := csv.Spec.InstallStrategy.StrategySpec
	account := schema.GroupResource{Resource: "serviceaccounts"}
	for _, p := range append(install.ClusterPermissions, install.Permissions...) {
		c.grants = append(c.grants, p.Rules...)
		c.namespaced[account] = append(c.namespaced[account], p.ServiceAccountName)
	}
	for _, d := range install.DeploymentSpecs {
		at := schema.GroupResource{Group: "apps", Resource: "deployments"}
		c.namespaced[at] = append(c.namespaced[at], d.Name)
	}
	return nil
}
