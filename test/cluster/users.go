package cluster

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// As returns a client that the API server takes for another user.
func As(t *testing.T, user string) client.Client {
	t.Helper()
	c := rest.CopyConfig(Config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	cl, err := client.New(c, client.Options{Scheme: Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// Bind gives a user a ClusterRole in a namespace, or everywhere if ns is empty; the returned object takes it away.
func Bind(t *testing.T, ns, user, role string) client.Object {
	t.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}
	meta := metav1.ObjectMeta{Namespace: ns, GenerateName: "e2e-"}
	var o client.Object = &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
	if ns == "" {
		o = &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
	}
	if err := Admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Admin.Delete(context.WithoutCancel(t.Context()), o) })
	return o
}

// ConfigAs is config for another user.
func ConfigAs(user string) *rest.Config {
	c := rest.CopyConfig(Config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return c
}

// CoreConfig is c for requests to the core group.
func CoreConfig(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.APIPath, c.GroupVersion, c.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, clientgoscheme.Codecs.WithoutConversion()
	return c
}
