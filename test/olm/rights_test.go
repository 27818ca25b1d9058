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

// asked is one question to the API server: may a user do this?
type asked struct{ namespace, verb, group, resource string }

func may(ctx context.Context, t *testing.T, user string, groups []string, a asked) bool {
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

// What the manager keeps in its own namespace it may touch nowhere else: OLM v0 and v1 both make ClusterRoles of a
// ClusterServiceVersion's permissions where the install mode is AllNamespaces.
func managersRights(t *testing.T) {
	elsewhere := cluster.Namespace(t, nil)
	account := "system:serviceaccount:" + cluster.OperatorNamespace + ":sonde-manager"
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + cluster.OperatorNamespace}
	for _, a := range []asked{
		{verb: "get", resource: "secrets"},
		{verb: "list", resource: "secrets"},
		{verb: "create", resource: "secrets"},
		{verb: "create", resource: "configmaps"},
		{verb: "list", resource: "configmaps"},
		{verb: "create", group: "batch", resource: "jobs"},
		{verb: "delete", group: "batch", resource: "jobs"},
		{verb: "list", group: "batch", resource: "jobs"},
		{verb: "create", group: "coordination.k8s.io", resource: "leases"},
	} {
		for ns, want := range map[string]bool{cluster.OperatorNamespace: true, elsewhere: false, "": false} {
			a.namespace = ns
			if got := may(t.Context(), t, account, groups, a); got != want {
				t.Errorf("the manager may %s %s in %q: %t, want %t", a.verb, a.resource, ns, got, want)
			}
		}
	}
	for _, a := range []asked{
		{verb: "escalate", group: "rbac.authorization.k8s.io", resource: "clusterroles"},
		{verb: "bind", group: "rbac.authorization.k8s.io", resource: "clusterroles"},
		{verb: "impersonate", resource: "users"},
		{verb: "create", resource: "pods"},
		{verb: "create", resource: "pods/exec"},
	} {
		a.namespace = elsewhere
		if may(t.Context(), t, account, groups, a) {
			t.Errorf("the manager may %s %s", a.verb, a.resource)
		}
	}
}

// verbs that are asked for, in this order.
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

// rolesRights asks what admin, edit and view of a namespace may do with Sonde's kinds, and holds it against the table in
// docs/olm.md.
func rolesRights(t *testing.T, w way) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	got := map[string]string{}
	for _, role := range []string{"admin", "edit", "view"} {
		cluster.Bind(t, ns, role, role)
	}
	for _, role := range []string{"admin", "edit", "view"} {
		cluster.Eventually(t, 10*time.Second, "roles aggregated", func(ctx context.Context) error {
			if !may(ctx, t, role, nil, asked{ns, "get", sondev1.GroupVersion.Group, "packetcaptures"}) {
				return fmt.Errorf("%s may not get packetcaptures", role)
			}
			return nil
		})
		for _, resource := range []string{"packetcaptures", "traces", "resultaccesses"} {
			var allowed []string
			for _, verb := range verbs {
				if may(t.Context(), t, role, nil, asked{ns, verb, sondev1.GroupVersion.Group, resource}) {
					allowed = append(allowed, verb)
				}
			}
			got[role+" "+resource] = strings.Join(allowed, " ")
		}
		for _, verb := range []string{sondev1.VerbCapture, sondev1.VerbTrace} {
			if may(t.Context(), t, role, nil, asked{ns, verb, "", "pods"}) {
				got[role+" pods"] = strings.TrimSpace(got[role+" pods"] + " " + verb)
			}
		}
		if may(t.Context(), t, role, nil, asked{ns, "patch", sondev1.GroupVersion.Group, "packetcaptures/status"}) {
			t.Errorf("%s may write the status", role)
		}
	}
	if diff := cmp.Diff(w.roles(), got); diff != "" {
		t.Errorf("what the roles may (-want +got):\n%s", diff)
	}
}
