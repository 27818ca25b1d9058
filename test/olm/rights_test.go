//go:build olm

package olm

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// request is an action that a user may or may not do.
type request struct{ namespace, verb, group, resource string }

func allowed(ctx context.Context, t *testing.T, user string, groups []string, a request) bool {
	t.Helper()
	r := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: append(groups, "system:authenticated"),
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: a.namespace, Verb: a.verb, Group: a.group, Resource: a.resource},
	}}
	if err := cluster.Admin.Create(ctx, r); err != nil {
		t.Fatal(err)
	}
	return r.Status.Allowed
}

// The manager must not have its rights in its own namespace elsewhere. OLM v0 and v1 both create ClusterRoles of a
// ClusterServiceVersion's permissions if the install mode is AllNamespaces.
func testManagerRights(t *testing.T) {
	elsewhere := cluster.Namespace(t, nil)
	account := "system:serviceaccount:" + cluster.OperatorNamespace + ":sonde-manager"
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + cluster.OperatorNamespace}
	for _, a := range []request{
		{verb: "get", resource: "secrets"},
		{verb: "list", resource: "secrets"},
		{verb: "create", resource: "secrets"},
		{verb: "create", resource: "configmaps"},
		{verb: "list", resource: "configmaps"},
		{verb: "create", group: "batch", resource: "jobs"},
		{verb: "delete", group: "batch", resource: "jobs"},
		{verb: "create", group: "coordination.k8s.io", resource: "leases"},
	} {
		for ns, want := range map[string]bool{cluster.OperatorNamespace: true, elsewhere: false, "": false} {
			a.namespace = ns
			if got := allowed(t.Context(), t, account, groups, a); got != want {
				t.Errorf("the manager may %s %s in %q: %t, want %t", a.verb, a.resource, ns, got, want)
			}
		}
	}
	for _, a := range []request{
		{verb: "escalate", group: "rbac.authorization.k8s.io", resource: "clusterroles"},
		{verb: "bind", group: "rbac.authorization.k8s.io", resource: "clusterroles"},
		{verb: "impersonate", resource: "users"},
		{verb: "create", resource: "pods"},
		{verb: "create", resource: "pods/exec"},
	} {
		a.namespace = elsewhere
		if allowed(t.Context(), t, account, groups, a) {
			t.Errorf("the manager may %s %s", a.verb, a.resource)
		}
	}
}

// verbs to test, in this order.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// defaultRoles is what the bundle's own ClusterRoles give to admin, edit and view.
func defaultRoles() map[string]string {
	all := strings.Join(verbs, " ")
	return map[string]string{
		"admin packetcaptures": all, "admin traces": all, "admin resultaccesses": all, "admin pods": sondev1.VerbCapture + " " + sondev1.VerbTrace,
		"edit packetcaptures": all, "edit traces": all, "edit resultaccesses": all,
		"view packetcaptures": "get list watch", "view traces": "get list watch", "view resultaccesses": "",
	}
}

// testRoleRights compares the rights of a namespace's admin, edit and view on Sonde's kinds with the table in
// docs/olm.md.
func testRoleRights(t *testing.T, m installMethod) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	got := map[string]string{}
	for _, role := range []string{"admin", "edit", "view"} {
		cluster.Bind(t, ns, role, role)
	}
	for _, role := range []string{"admin", "edit", "view"} {
		cluster.Eventually(t, 10*time.Second, "roles aggregated", func(ctx context.Context) error {
			if !allowed(ctx, t, role, nil, request{ns, "get", sondev1.GroupVersion.Group, "packetcaptures"}) {
				return fmt.Errorf("%s may not get packetcaptures", role)
			}
			return nil
		})
		for _, resource := range []string{"packetcaptures", "traces", "resultaccesses"} {
			var granted []string
			for _, verb := range verbs {
				if allowed(t.Context(), t, role, nil, request{ns, verb, sondev1.GroupVersion.Group, resource}) {
					granted = append(granted, verb)
				}
			}
			got[role+" "+resource] = strings.Join(granted, " ")
		}
		for _, verb := range []string{sondev1.VerbCapture, sondev1.VerbTrace} {
			if allowed(t.Context(), t, role, nil, request{ns, verb, "", "pods"}) {
				got[role+" pods"] = strings.TrimSpace(got[role+" pods"] + " " + verb)
			}
		}
		if allowed(t.Context(), t, role, nil, request{ns, "patch", sondev1.GroupVersion.Group, "packetcaptures/status"}) {
			t.Errorf("%s may write the status", role)
		}
	}
	if diff := cmp.Diff(m.roles(), got); diff != "" {
		t.Errorf("rights of the roles (-want +got):\n%s", diff)
	}
}
