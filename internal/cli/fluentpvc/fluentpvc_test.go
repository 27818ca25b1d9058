package fluentpvc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

func newClient(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, sondev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

var account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "sonde-system", Name: "sonde-manager"}}

func bound(role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "sonde-fluentpvc"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role},
	}
}

func TestAllow(t *testing.T) {
	manager := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "sonde-system", Name: "sonde-manager"}
	other := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "elsewhere", Name: "sonde-manager"}
	for name, tc := range map[string]struct {
		before       []client.Object
		wantChanged  bool
		wantErr      string
		wantSubjects []rbacv1.Subject
	}{
		"first time":             {[]client.Object{account}, true, "", []rbacv1.Subject{manager}},
		"second time":            {[]client.Object{account, bound(Role, manager)}, false, "", []rbacv1.Subject{manager}},
		"another operator":       {[]client.Object{account, bound(Role, other)}, true, "", []rbacv1.Subject{other, manager}},
		"a binding of more":      {[]client.Object{account, bound("admin", manager)}, false, "gives ClusterRole admin: delete it", []rbacv1.Subject{manager}},
		"no operator":            {nil, false, "--operator-namespace", nil},
		"no operator, but bound": {[]client.Object{bound(Role, manager)}, false, "--operator-namespace", []rbacv1.Subject{manager}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, interceptor.Funcs{}, tc.before...)
			changed, err := Namespace{Client: c, Name: "shop", Operator: "sonde-system"}.Allow(t.Context())
			if changed != tc.wantChanged || (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("changed is %v (%v), want %v and an error with %q", changed, err, tc.wantChanged, tc.wantErr)
			}
			var got rbacv1.RoleBinding
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: Role}, &got); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantSubjects, got.Subjects); diff != "" {
				t.Errorf("subjects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAllowRefused(t *testing.T) {
	resource := func(name string) schema.GroupResource {
		return schema.GroupResource{Group: rbacv1.GroupName, Resource: name}
	}
	forbidden := apierrors.NewForbidden(resource("rolebindings"), Role, errors.New(`User "eve" cannot create resource "rolebindings"`))
	for name, tc := range map[string]struct {
		get, create error
		want        string
	}{
		"no right to read":    {get: forbidden, want: "Ask an admin of namespace shop"},
		"no right to create":  {create: forbidden, want: "Ask an admin of namespace shop"},
		"no such ClusterRole": {create: apierrors.NewNotFound(resource("clusterroles"), Role), want: "older than this plugin"},
		"no such namespace":   {create: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), want: `namespaces "shop" not found`},
		"another error":       {get: errors.New("connection lost"), want: "get the RoleBinding: connection lost"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, interceptor.Funcs{
				// A user who may not read the operator's ServiceAccount may still allow.
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, ok := o.(*corev1.ServiceAccount); ok {
						return forbidden
					}
					if tc.get != nil {
						return tc.get
					}
					return c.Get(ctx, key, o, opts...)
				},
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return tc.create },
			})
			if _, err := (Namespace{Client: c, Name: "shop", Operator: "sonde-system"}).Allow(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestDisallow(t *testing.T) {
	away := errors.New("no right")
	listless := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return away }}
	for name, tc := range map[string]struct {
		funcs       interceptor.Funcs
		before      []client.Object
		wantExisted bool
		wantLeft    int
	}{
		"allowed before":     {before: []client.Object{bound(Role)}, wantExisted: true},
		"never allowed":      {},
		"volumes are left":   {before: []client.Object{bound(Role), volume(sondev1.BindingReady)}, wantExisted: true, wantLeft: 1},
		"no right to count":  {funcs: listless, before: []client.Object{bound(Role)}, wantExisted: true, wantLeft: -1},
		"another binding is": {before: []client.Object{&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			n := Namespace{Client: newClient(t, tc.funcs, tc.before...), Name: "shop", Operator: "sonde-system"}
			existed, left, err := n.Disallow(t.Context())
			if err != nil || existed != tc.wantExisted || left != tc.wantLeft {
				t.Errorf("existed %v, left %d (%v), want %v and %d", existed, left, err, tc.wantExisted, tc.wantLeft)
			}
		})
	}
	refused := interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return away }}
	if _, _, err := (Namespace{Client: newClient(t, refused), Name: "shop"}).Disallow(t.Context()); !errors.Is(err, away) {
		t.Errorf("got %v, want %v", err, away)
	}
}

var key = client.ObjectKey{Namespace: "shop", Name: "logs-1"}

func volume(phase sondev1.BindingPhase) *sondev1.FluentPVCBinding {
	return &sondev1.FluentPVCBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "b-1"},
		Spec:       sondev1.FluentPVCBindingSpec{Pod: sondev1.ObjectReference{Name: "web-1", UID: "p-1"}},
		Status:     sondev1.FluentPVCBindingStatus{Phase: phase},
	}
}

func claim(labels map[string]string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "c-1", Labels: labels}}
}

// signed is a claim whose annotation says which FluentPVC it is of.
func signed(annotation string) *corev1.PersistentVolumeClaim {
	c := claim(ours)
	c.Annotations = map[string]string{sondev1.AnnotationClaim: annotation}
	return c
}

var ours = map[string]string{sondev1.LabelKind: kindBinding}

func TestFind(t *testing.T) {
	for name, tc := range map[string]struct {
		before   []client.Object
		wantLoss string // empty if there is no volume
	}{
		"new":                   {[]client.Object{volume("")}, "PersistentVolumeClaim logs-1 of Pod web-1: Pending, it has no data"},
		"in use":                {[]client.Object{volume(sondev1.BindingReady)}, "PersistentVolumeClaim logs-1 of Pod web-1: Ready, the Pod uses it; it is deleted after the Pod has ended, and no Job processes its data"},
		"failed":                {[]client.Object{volume(sondev1.BindingFinalizerJobFailed)}, "PersistentVolumeClaim logs-1 of Pod web-1: FinalizerJobFailed, its data is not processed"},
		"succeeded":             {[]client.Object{volume(sondev1.BindingFinalizerJobSucceeded)}, "PersistentVolumeClaim logs-1 of Pod web-1: FinalizerJobSucceeded, its data is processed"},
		"lost":                  {[]client.Object{volume(sondev1.BindingDataLost)}, "PersistentVolumeClaim logs-1 of Pod web-1: DataLost"},
		"only a claim":          {[]client.Object{claim(ours)}, "PersistentVolumeClaim logs-1: no FluentPVCBinding, so nothing will process its data"},
		"without its FluentPVC": {[]client.Object{signed("logs/logs-1/00")}, "PersistentVolumeClaim logs-1: no FluentPVCBinding, so nothing will process its data, unless FluentPVC logs is created again"},
		"another's claim":       {[]client.Object{claim(nil)}, ""},
		"neither of them":       {nil, ""},
		"binding is first":      {[]client.Object{volume(sondev1.BindingOutOfUse), claim(ours)}, "PersistentVolumeClaim logs-1 of Pod web-1: OutOfUse, its data is not processed"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := Find(t.Context(), newClient(t, interceptor.Funcs{}, tc.before...), key.Namespace, key.Name)
			if tc.wantLoss == "" {
				if !apierrors.IsNotFound(err) {
					t.Errorf("got %v, want that it is not found", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantLoss, v.Loss()); diff != "" {
				t.Errorf("loss (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRetry(t *testing.T) {
	for name, tc := range map[string]struct {
		before  client.Object
		wantErr string
	}{
		"failed":                {volume(sondev1.BindingFinalizerJobFailed), ""},
		"running":               {volume(sondev1.BindingFinalizerJobApplied), "is FinalizerJobApplied: only one that is FinalizerJobFailed"},
		"new":                   {volume(""), "is Pending"},
		"lost":                  {volume(sondev1.BindingDataLost), "is DataLost: its claim was deleted before its data was processed"},
		"only a claim":          {claim(ours), "nothing processes its data: save the data with a Pod of yours, and then run \"kubectl sonde fluentpvc discard logs-1 -n shop\""},
		"without its FluentPVC": {signed("logs/logs-1/00"), "if FluentPVC logs was deleted, create it again, and the operator makes the binding again and processes the data; or save"},
		"of another claim":      {signed("logs/logs-2/00"), "nothing processes its data: save"},
		"of no name":            {signed("a\nb/logs-1/00"), "nothing processes its data: save"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, interceptor.Funcs{}, tc.before)
			v, err := Find(t.Context(), c, key.Namespace, key.Name)
			if err != nil {
				t.Fatal(err)
			}
			var last string
			for i := range 2 {
				err := v.Retry(t.Context(), time.Date(2026, 1, 2, 3, 4, 5, i, time.UTC))
				if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("got %v, want an error with %q", err, tc.wantErr)
				}
				if err := c.Get(t.Context(), key, tc.before); err != nil {
					t.Fatal(err)
				}
				value := tc.before.GetAnnotations()[sondev1.AnnotationRetry]
				if (value == last) != (tc.wantErr != "") {
					t.Errorf("the annotation is %q, and was %q", value, last)
				}
				last = value
			}
		})
	}
}

func TestDiscard(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, before := range map[string]client.Object{"binding": volume(sondev1.BindingFinalizerJobFailed), "only a claim": claim(ours)} {
		t.Run(name, func(t *testing.T) {
			annotated := ""
			c := newClient(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				annotated = o.GetAnnotations()[sondev1.AnnotationDiscard]
				return c.Delete(ctx, o, opts...)
			}}, before)
			v, err := Find(t.Context(), c, key.Namespace, key.Name)
			if err != nil {
				t.Fatal(err)
			}
			if err := v.Discard(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			err = c.Get(t.Context(), key, before)
			if _, isClaim := before.(*corev1.PersistentVolumeClaim); isClaim {
				if !apierrors.IsNotFound(err) || annotated == "" {
					t.Errorf("the claim is left (%v), or was deleted without its annotation %q", err, annotated)
				}
				return
			}
			if err != nil || before.GetAnnotations()[sondev1.AnnotationDiscard] != "2026-01-02T03:04:05Z" {
				t.Errorf("the binding has annotations %v (%v)", before.GetAnnotations(), err)
			}
		})
	}
}
