package cluster

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// As returns a client that impersonates another user.
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

// Bind binds a user to a ClusterRole in a namespace, or in the cluster if ns is empty. Deleting the returned binding
// withdraws the role.
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

// ConfigAs returns a copy of Config that impersonates another user.
func ConfigAs(user string) *rest.Config {
	c := rest.CopyConfig(Config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return c
}

// CoreConfig returns a copy of c for requests to the core API group.
func CoreConfig(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.APIPath, c.GroupVersion, c.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, clientgoscheme.Codecs.WithoutConversion()
	return c
}

// ServiceAccountToken creates a ServiceAccount and returns a token for it.
func ServiceAccountToken(t *testing.T, ns, name string) string {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	if err := Admin.Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	var token authenticationv1.TokenRequest
	if err := Admin.SubResource("token").Create(t.Context(), sa, &token); err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}
