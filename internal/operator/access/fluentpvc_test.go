package access_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/internal/operator/access"
)

func TestGrantsFluentPVC(t *testing.T) {
	subject := access.ManagerSubject("sonde-system")
	for name, tc := range map[string]struct {
		change func(*rbacv1.RoleBinding)
		want   bool
	}{
		"as allow creates it": {change: func(*rbacv1.RoleBinding) {}, want: true},
		"with other subjects": {change: func(b *rbacv1.RoleBinding) {
			b.Subjects = []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "alice"}, subject}
		}, want: true},
		"no subjects":              {change: func(b *rbacv1.RoleBinding) { b.Subjects = nil }},
		"another ServiceAccount":   {change: func(b *rbacv1.RoleBinding) { b.Subjects[0].Name = "default" }},
		"of another namespace":     {change: func(b *rbacv1.RoleBinding) { b.Subjects[0].Namespace = "shop" }},
		"a user with its name":     {change: func(b *rbacv1.RoleBinding) { b.Subjects[0].Kind = rbacv1.UserKind }},
		"another ClusterRole":      {change: func(b *rbacv1.RoleBinding) { b.RoleRef.Name = "view" }},
		"a Role of this name":      {change: func(b *rbacv1.RoleBinding) { b.RoleRef.Kind = "Role" }},
		"a role of another group":  {change: func(b *rbacv1.RoleBinding) { b.RoleRef.APIGroup = "" }},
		"another name":             {change: func(b *rbacv1.RoleBinding) { b.Name = "volumes" }},
		"neither role nor subject": {change: func(b *rbacv1.RoleBinding) { b.RoleRef, b.Subjects = rbacv1.RoleRef{}, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			b := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "sonde-fluentpvc"},
				RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "sonde-fluentpvc"},
				Subjects:   []rbacv1.Subject{subject},
			}
			tc.change(b)
			if got := access.GrantsFluentPVC(b, "sonde-system"); got != tc.want {
				t.Errorf("GrantsFluentPVC(%+v) = %t, want %t", b, got, tc.want)
			}
		})
	}
}
