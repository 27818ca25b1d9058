//go:build api

package api

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/platform"
)

// Users of TestCollectorPolicy. RBAC allows each of them all requests on the hub's Collectors. The tenants may also create Jobs, each in
// one namespace.
const (
	hubMember   = "hub-member"
	hubTenant   = "hub-tenant"
	otherTenant = "other-tenant"
	clusterUser = "cluster-user" // a cluster admin
)

// TestCollectorPolicy tries, at a real API server, to remove the release of a hub's Collector. Each refusal has a control that passes.
func TestCollectorPolicy(t *testing.T) {
	hub, ns, other := namespace(t, map[string]string{sondev1.LabelHub: "true"}), namespace(t, nil), namespace(t, nil)
	collectors := rbacv1.PolicyRule{
		APIGroups: []string{sondev1.GroupVersion.Group}, Resources: []string{"collectors"},
		Verbs: []string{"get", "update", "patch", "delete", "deletecollection"},
	}
	jobs := rbacv1.PolicyRule{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"create"}}
	for _, name := range []string{hubMember, hubTenant, otherTenant, anyController} {
		grant(t, hub, name, collectors)
	}
	grant(t, ns, hubTenant, jobs)
	grant(t, ns, hubMember, collectors) // of a namespace that is no hub
	grant(t, other, otherTenant, jobs)

	createUntilEnd(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "granted-"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: clusterUser}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	})

	named := func(home, name, reference string) *sondev1.Collector {
		c := &sondev1.Collector{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name}}
		c.Spec.Collector.Name, c.Spec.Tenant.Reference, c.Spec.Tenant.Instance = "collector", reference, name
		create(t, c)
		return c
	}
	c, upper, own, left := named(hub, "lower", ns), named(hub, "upper", strings.ToUpper(ns)), named(hub, "own", hub), named(hub, "left", "gone-"+ns)
	home := named(ns, "home", ns)
	deleting := func(o *sondev1.Collector) func(client.Client) error {
		return func(cl client.Client) error { return cl.Delete(t.Context(), o.DeepCopy()) }
	}
	member := as(t, hubMember)
	enforce(t, platform.CollectorPolicy(), func(ctx context.Context) bool {
		return apierrors.IsForbidden(member.Delete(ctx, c.DeepCopy(), client.DryRunAll))
	})
	removeAll := func(cl client.Client) error {
		return cl.DeleteAllOf(t.Context(), &sondev1.Collector{}, client.InNamespace(hub))
	}
	owner := patching(t, c, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"gone"}]}}`)
	finalizer := patching(t, c, `{"metadata":{"finalizers":["example.com/held"]}}`)
	deletes := "the deletion of this Collector removes its release in namespace " + ns + ": you need the right to create Jobs in that namespace"
	const owners = "a Collector is deleted with its owners"
	tryAll(t, map[string]attempt{
		"member deletes":                           {hubMember, deleting(c), deletes},
		"member deletes all":                       {hubMember, removeAll, "the deletion of this Collector removes its release in namespace "},
		"member deletes one in upper case":         {hubMember, deleting(upper), deletes},
		"tenant of another namespace deletes":      {otherTenant, deleting(c), deletes},
		"tenant deletes":                           {hubTenant, deleting(c), ""},
		"tenant deletes one in upper case":         {hubTenant, deleting(upper), ""},
		"member deletes one with a release here":   {hubMember, deleting(own), ""},
		"member deletes one outside of hubs":       {hubMember, deleting(home), ""},
		"member deletes one without its namespace": {hubMember, deleting(left), "right to create Jobs"},
		"cluster admin deletes it":                 {clusterUser, deleting(left), ""},
		"garbage collector deletes":                {collector, deleting(c), ""},
		"namespace controller deletes all":         {terminator, removeAll, ""},
		"controller without account of its own":    {anyController, removeAll, ""},
		"member adds an owner":                     {hubMember, owner, owners},
		"tenant adds an owner":                     {hubTenant, owner, ""},
		"garbage collector changes the owners":     {collector, owner, ""},
		"member adds a finalizer":                  {hubMember, finalizer, "a finalizer keeps this Collector's release"},
		"tenant adds a finalizer":                  {hubTenant, finalizer, ""},
		"member annotates":                         {hubMember, annotating(t, c, "a", "1"), ""},
		"member retries":                           {hubMember, annotating(t, c, sondev1.AnnotationRetry, "1"), "a retry runs Helm"},
		"tenant retries":                           {hubTenant, annotating(t, c, sondev1.AnnotationRetry, "2"), ""},
	})
}
