package collector

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func newNamespace(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) Namespace {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return Namespace{Client: fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithInterceptorFuncs(funcs).Build(), Name: "acme", Operator: "sonde-system"}
}

var account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "sonde-system", Name: "sonde-manager"}}

// open returns what Open reports.
func open(t *testing.T, n Namespace) (map[string]string, error) {
	t.Helper()
	done := map[string]string{}
	err := n.Open(t.Context(), func(o client.Object, what string) {
		what, _, _ = strings.Cut(what, ":")
		done[KindOf(o)+"/"+o.GetName()] = what
	})
	return done, err
}

func all(what string) map[string]string {
	return map[string]string{
		"serviceaccount/sonde-releaser": what, "role/sonde-releaser": what, "rolebinding/sonde-releaser": what,
		"role/sonde-releaser-monitoring": what, "rolebinding/sonde-releaser-monitoring": what, "rolebinding/sonde-collector": what,
	}
}

func TestOpenAndClose(t *testing.T) {
	n := newNamespace(t, interceptor.Funcs{}, account)
	for _, want := range []string{"created", "unchanged"} {
		done, err := open(t, n)
		if diff := cmp.Diff(all(want), done); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	role := &rbacv1.Role{}
	if err := n.Client.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: Releaser}, role); err != nil {
		t.Fatal(err)
	}
	role.Rules = nil
	if err := n.Client.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if done, err := open(t, n); done["role/sonde-releaser"] != "changed" || err != nil {
		t.Errorf("%v, %v, want the Role changed", done, err)
	}
	for _, want := range []string{"deleted", "not found"} {
		done := map[string]string{}
		err := n.Close(t.Context(), func(o client.Object, what string) { done[KindOf(o)+"/"+o.GetName()] = what })
		if diff := cmp.Diff(all(want), done); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}

// An admin without rights on ServiceMonitors opens the namespace without them.
func TestOpenWithoutMonitoring(t *testing.T) {
	n := newNamespace(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*rbacv1.Role); ok && o.GetName() == Monitoring {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "roles"}, Monitoring, errors.New("escalation"))
		}
		return c.Create(ctx, o, opts...)
	}}, account)
	want := all("created")
	want["role/sonde-releaser-monitoring"] = "skipped"
	delete(want, "rolebinding/sonde-releaser-monitoring")
	done, err := open(t, n)
	if diff := cmp.Diff(want, done); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestOpenRefused(t *testing.T) {
	forbid := interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, Releaser, errors.New("no right"))
	}}
	foreign := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: Manager}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "admin"}}
	for name, tc := range map[string]struct {
		n    Namespace
		want string
	}{
		"no operator":       {newNamespace(t, interceptor.Funcs{}), "--operator-namespace"},
		"no right":          {newNamespace(t, forbid, account), "Ask an admin of namespace acme"},
		"a foreign binding": {newNamespace(t, interceptor.Funcs{}, account, foreign), "it gives ClusterRole admin: delete it"},
	} {
		if _, err := open(t, tc.n); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// The operator reads no Secret, and the releaser gets no right on Roles. The operator's right ends with the install, although the
// RoleBinding stays.
func TestRights(t *testing.T) {
	for _, o := range (Namespace{Name: "acme", Operator: "sonde-system"}).objects() {
		if b, ok := o.(*rbacv1.RoleBinding); ok && b.Subjects[0].Namespace == "sonde-system" && b.RoleRef.Kind != "ClusterRole" {
			t.Errorf("%s gives the operator a %s, which stays when the operator goes", b.Name, b.RoleRef.Kind)
		}
	}
	manager := installed(t)
	if len(manager) == 0 {
		t.Errorf("the install has no ClusterRole %s", Manager)
	}
	for _, r := range manager {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				if resource == "secrets" && verb != "create" && verb != "delete" || verb == "*" || verb == "update" || verb == "patch" {
					t.Errorf("the operator may %s %s", verb, resource)
				}
			}
		}
	}
	for _, r := range releaserRules() {
		for _, group := range r.APIGroups {
			if group == rbacv1.GroupName || group == "*" {
				t.Errorf("the releaser has rights on %s", group)
			}
		}
	}
}

// installed returns the rules of the operator's ClusterRole.
func installed(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	f, err := os.Open("../../../config/rbac/user_roles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var role rbacv1.ClusterRole
		switch err := decoder.Decode(&role); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			t.Fatal(err)
		case role.Name == Manager:
			return role.Rules
		}
	}
}
