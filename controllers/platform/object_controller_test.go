package platform

import (
	"context"
	"errors"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/platform"
)

func platformReconciler(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *ObjectReconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
	return &ObjectReconciler{Client: c, Live: c, Desired: platform.SecurityContextConstraints(agentjob.Options{Namespace: "sonde-system"})}
}

func (r *ObjectReconciler) pass(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	key := client.ObjectKeyFromObject(r.Desired)
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	live := r.empty()
	if err := r.Get(t.Context(), key, live); err != nil {
		t.Fatal(err)
	}
	return live
}

func TestPlatformRepairs(t *testing.T) {
	applies := 0
	count := interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
		applies++
		return c.Apply(ctx, o, opts...)
	}}
	r := platformReconciler(t, count, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: platform.OwnerClusterRole, UID: "r-1"}})
	change := func(f func(u *unstructured.Unstructured)) func(*unstructured.Unstructured) {
		return func(live *unstructured.Unstructured) {
			f(live)
			if err := r.Update(t.Context(), live); err != nil {
				t.Fatal(err)
			}
		}
	}
	steps := []struct {
		what   string
		before func(live *unstructured.Unstructured)
		want   int // applies in all
	}{
		{"first pass", func(*unstructured.Unstructured) {}, 1},
		{"nothing changed", func(*unstructured.Unstructured) {}, 1},
		{"widened to a group", change(func(u *unstructured.Unstructured) { u.Object["groups"] = []any{"system:authenticated"} }), 2},
		{"one more user", change(func(u *unstructured.Unstructured) {
			u.Object["users"] = append(u.Object["users"].([]any), "system:serviceaccount:shop:default")
		}), 3},
		{"host network", change(func(u *unstructured.Unstructured) { u.Object["allowHostNetwork"] = true }), 4},
		{"unowned", change(func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) }), 5},
		{"deleted", func(u *unstructured.Unstructured) {
			if err := r.Delete(t.Context(), u); err != nil {
				t.Fatal(err)
			}
		}, 6},
		{"another's label", change(func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) }), 7},
		{"nothing changed again", func(*unstructured.Unstructured) {}, 7},
	}
	var live *unstructured.Unstructured
	for _, s := range steps {
		s.before(live)
		live = r.pass(t)
		if applies != s.want {
			t.Errorf("%s: %d applies, want %d", s.what, applies, s.want)
		}
		desired := r.Desired.DeepCopy()
		desired.SetOwnerReferences(platform.OwnerReferences("r-1"))
		if !platform.Covers(desired, live) {
			t.Errorf("%s: differs from the desired one: %v", s.what, live.Object)
		}
	}
}

func TestPlatformWithoutOwner(t *testing.T) {
	r := platformReconciler(t, interceptor.Funcs{})
	if live := r.pass(t); len(live.GetOwnerReferences()) != 0 {
		t.Errorf("owners %v, want none", live.GetOwnerReferences())
	}
}

func TestPlatformReportsFailures(t *testing.T) {
	away := errors.New("API server away")
	cases := map[string]interceptor.Funcs{
		"get": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return away
		}},
		"apply": {Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return away
		}},
	}
	for name, funcs := range cases {
		t.Run(name, func(t *testing.T) {
			r := platformReconciler(t, funcs)
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r.Desired)}); !errors.Is(err, away) {
				t.Errorf("got %v, want %v", err, away)
			}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "someone-elses"}}); err != nil {
				t.Errorf("other object: %v", err)
			}
		})
	}
}
