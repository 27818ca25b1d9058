//go:build e2e

package security

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/cluster"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/rights"
)

// kept reports a right that the audit log never shows, because the API server checks it within another request. That is
// creating an object by server-side apply, or setting an owner under OpenShift's OwnerReferencesPermissionEnforcement.
// TestRbacHiddenRights shows that these rights are needed.
func kept(r rights.Right) bool {
	if r.Name == "" || r.Resource == "secrets" || r.Resource == "leases" {
		return false
	}
	return r.Verb == "create" || r.Verb == "delete" && r.Name != tunnel.Name // which the manager deletes after the last intercept
}

// A named step uses each right of the manager. Without the right, that step's request is refused, because no other rule
// allows it.
func TestRbacEachRuleIsUsedAndNeeded(t *testing.T) {
	stubAPIs(t)
	used := map[rights.Right]string{}
	sample := map[rights.Right]request{}
	all := managerRights(t)
	for _, step := range steps() {
		from := time.Now()
		t.Run("step: "+step.name, step.run)
		time.Sleep(time.Second) // the API server logs a request after it has answered
		for _, r := range requests(t, from, time.Now()) {
			for _, right := range all {
				if _, ok := used[right]; !ok && r.needs(right) && r.Response.Code != http.StatusForbidden {
					used[right], sample[right] = step.name, r
				}
			}
		}
	}
	for _, right := range all {
		step, ok := used[right]
		switch {
		case kept(right):
		case !present(t, right):
			t.Logf("not on this cluster: %s", right.Key())
		case !ok:
			t.Errorf("%s: no step uses this right: remove it from the marker, or write the step that needs it", right.Key())
		default:
			t.Run(fmt.Sprintf("without %s, %s fails", right.Key(), step), func(t *testing.T) {
				takeAway(t, right)
				cluster.Eventually(t, 10*time.Second, "refusal", func(ctx context.Context) error { return wantRefused(ctx, sample[right]) })
			})
		}
	}
}

// The audit log does not show the rights that server-side apply and OpenShift's check of owners need. The test removes
// the right together with the object or its owner, and the manager cannot restore it.
func TestRbacHiddenRights(t *testing.T) {
	stubAPIs(t)
	// The configuration of gates exists only while a Trace gates.
	cluster.GatedTrace(t, cluster.Deployment(t, cluster.Namespace(t, nil), "web", 1, "idle"), sondev1.TraceGate{})
	// And Stowaway exists only while there is an intercept.
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "web", 1, "serve")
	cluster.Intercept(t, ns, "web", 1, "--to", cluster.Laptop(t, "laptop"))
	for _, right := range managerRights(t) {
		if !kept(right) || !present(t, right) {
			continue
		}
		t.Run(right.Key(), func(t *testing.T) {
			o := objectOf(t, right)
			if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			takeAway(t, right)
			probe := request{}
			probe.Verb, probe.Object.Group, probe.Object.Resource = right.Verb, right.Group, right.Resource
			probe.Object.Namespace, probe.Object.Name = right.Namespace, right.Name
			cluster.Eventually(t, 10*time.Second, "refusal", func(ctx context.Context) error { return wantRefused(ctx, probe) })
			from := time.Now()
			if right.Verb == "create" {
				cluster.DeleteNow(t, o)
			} else if err := cluster.Admin.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"ownerReferences":null}}`))); err != nil {
				t.Fatal(err)
			}
			cluster.Eventually(t, 30*time.Second, "a refused request of the manager", func(context.Context) error {
				if !slices.ContainsFunc(requests(t, from, time.Now()), func(r request) bool {
					return r.Verb == "patch" && r.Object.Resource == right.Resource && r.Response.Code == http.StatusForbidden
				}) {
					return fmt.Errorf("found no refused patch of %s", right.Resource)
				}
				return nil
			})
		})
		awaitOwned(t, right)
	}
}

// awaitOwned waits until the manager, with all of its rights, has restored an object.
func awaitOwned(t *testing.T, right rights.Right) {
	t.Helper()
	o := objectOf(t, right)
	cluster.Eventually(t, 2*time.Minute, right.Resource+" restored", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if len(o.GetOwnerReferences()) == 0 {
			return fmt.Errorf("the object has no owner")
		}
		return nil
	})
}

func objectOf(t *testing.T, right rights.Right) *unstructured.Unstructured {
	t.Helper()
	kind, err := cluster.Admin.RESTMapper().KindFor(schema.GroupVersionResource{Group: right.Group, Resource: right.Resource})
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(right.Namespace)
	o.SetName(right.Name)
	return o
}

// present reports whether the cluster has the API that a right is for.
func present(t *testing.T, right rights.Right) bool {
	t.Helper()
	main, _, _ := strings.Cut(right.Resource, "/")
	_, err := cluster.Admin.RESTMapper().KindFor(schema.GroupVersionResource{Group: right.Group, Resource: main})
	if err != nil && !apimeta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	return err == nil
}

// takeAway removes one right from the manager's live role until the test ends.
func takeAway(t *testing.T, right rights.Right) {
	t.Helper()
	var role client.Object = &rbacv1.ClusterRole{}
	if right.Namespace != "" {
		role = &rbacv1.Role{}
	}
	set := func(ctx context.Context, change func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) {
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: right.Namespace, Name: "sonde-manager"}, role); err != nil {
			t.Fatal(err)
		}
		switch r := role.(type) {
		case *rbacv1.ClusterRole:
			r.Rules = change(r.Rules)
		case *rbacv1.Role:
			r.Rules = change(r.Rules)
		}
		if err := cluster.Admin.Update(ctx, role); err != nil {
			t.Fatal(err)
		}
	}
	var before []rbacv1.PolicyRule
	t.Cleanup(func() {
		set(context.WithoutCancel(t.Context()), func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return before })
	})
	set(t.Context(), func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		before = slices.Clone(rules)
		return rights.Without(rules, right)
	})
}

// wantRefused asks the API server whether the manager may still make a request, and returns an error if so.
func wantRefused(ctx context.Context, r request) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: cluster.ManagerUser, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + cluster.OperatorNamespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.Verb, Group: r.Object.Group, Resource: r.Object.Resource, Subresource: r.Object.Subresource, Namespace: r.Object.Namespace, Name: r.Object.Name,
		},
	}}
	if err := cluster.Admin.Create(ctx, review); err != nil {
		return err
	}
	if review.Status.Allowed {
		return fmt.Errorf("still allowed: %s", review.Status.Reason)
	}
	return nil
}
