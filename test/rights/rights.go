// Package rights splits RBAC objects into single rights and says which of them equal root on the nodes. Tests compare
// the result with docs/security.md and with the rights that a cluster saw in use.
package rights

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Right is one verb on one resource, the smallest unit that a rule grants.
type Right struct {
	// Role that grants it, such as "ClusterRole/sonde-manager".
	Role string
	// Namespace in which it applies; empty for a ClusterRole, which applies wherever it is bound.
	Namespace string
	// Verb on Resource ("pods", "pods/exec") of Group. For a path of the API server, Resource is the path.
	Verb, Group, Resource string
	// Name of the only object that it applies to; empty for all.
	Name string
}

// Key returns the right in one line, for messages and sorting.
func (r Right) Key() string {
	line := r.Role + ": " + r.Verb + " " + r.Target()
	if r.Name != "" {
		line += " " + r.Name
	}
	if r.Namespace != "" {
		line += " in " + r.Namespace
	}
	return line
}

// Target returns the resource with its group, as kubectl writes it: "jobs.batch".
func (r Right) Target() string {
	if r.Group == "" {
		return r.Resource
	}
	resource, sub, _ := strings.Cut(r.Resource, "/")
	target := resource + "." + r.Group
	if sub != "" {
		target += "/" + sub
	}
	return target
}

// Read returns the rights that the Roles and ClusterRoles in a stream of YAML documents grant, sorted. It skips other
// objects and returns an error for an invalid document.
func Read(stream []byte) ([]Right, error) {
	var all []Right
	docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		var role rbacv1.Role // a ClusterRole has the same fields and one more
		err := docs.Decode(&role)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read document: %w", err)
		}
		if role.Kind == "Role" || role.Kind == "ClusterRole" {
			all = append(all, Expand(role.Kind+"/"+role.Name, role.Namespace, role.Rules)...)
		}
	}
	slices.SortFunc(all, func(a, b Right) int { return cmp.Compare(a.Key(), b.Key()) })
	return all, nil
}

// Unbound returns the ClusterRoles, such as "ClusterRole/sonde-inject", that a stream of YAML documents binds to nobody and
// aggregates to no other role. An install of these documents grants none of their rights: an admin has to bind the role.
func Unbound(stream []byte) (map[string]bool, error) {
	unbound, bound := map[string]bool{}, map[string]bool{}
	docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		var o struct {
			Kind     string
			Metadata metav1.ObjectMeta
			RoleRef  rbacv1.RoleRef
		}
		err := docs.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read document: %w", err)
		}
		switch o.Kind {
		case "ClusterRole":
			unbound["ClusterRole/"+o.Metadata.Name] = !aggregated(o.Metadata.Labels)
		case "ClusterRoleBinding", "RoleBinding":
			bound[o.RoleRef.Kind+"/"+o.RoleRef.Name] = true
		}
	}
	maps.DeleteFunc(unbound, func(role string, is bool) bool { return !is || bound[role] })
	return unbound, nil
}

// aggregated reports whether Kubernetes adds a role with these labels to one of its own.
func aggregated(labels map[string]string) bool {
	for key := range labels {
		if strings.HasPrefix(key, "rbac.authorization.k8s.io/aggregate-to-") {
			return true
		}
	}
	return false
}

// Expand returns the rights of a role's rules, in their order.
func Expand(role, namespace string, rules []rbacv1.PolicyRule) []Right {
	var all []Right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				all = append(all, Right{Role: role, Namespace: namespace, Verb: verb, Resource: path})
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						all = append(all, Right{Role: role, Namespace: namespace, Verb: verb, Group: group, Resource: resource, Name: name})
					}
				}
			}
		}
	}
	return all
}

// Without returns rules that grant the same rights except one, which rules must contain.
func Without(rules []rbacv1.PolicyRule, gone Right) []rbacv1.PolicyRule {
	var left []rbacv1.PolicyRule
	for _, r := range Expand(gone.Role, gone.Namespace, rules) {
		if r == gone {
			continue
		}
		rule := rbacv1.PolicyRule{Verbs: []string{r.Verb}}
		if strings.HasPrefix(r.Resource, "/") {
			rule.NonResourceURLs = []string{r.Resource}
		} else {
			rule.APIGroups, rule.Resources = []string{r.Group}, []string{r.Resource}
		}
		if r.Name != "" {
			rule.ResourceNames = []string{r.Name}
		}
		left = append(left, rule)
	}
	return left
}
