//go:build api

package api

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
	"github.com/sonde-operator/sonde/test/crds"
)

// TestOptionalAPIs: the real CRDs accept the objects that the operator creates in optional APIs. The operator writes
// each object once and repairs it. Without the CRDs it creates nothing.
func TestOptionalAPIs(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: platform.OwnerClusterRole}}
	for _, o := range []client.Object{ns, role} { // other tests create them too, and leave them
		if err := admin.Create(t.Context(), o); apierrors.IsAlreadyExists(err) {
			err = admin.Get(t.Context(), client.ObjectKeyFromObject(o), o)
			if err != nil {
				t.Fatal(err)
			}
		} else if err != nil {
			t.Fatal(err)
		}
	}
	objects := append(platform.Console("0.2.0"), platform.Monitoring(operatorNamespace)...)
	objects = append(objects, platform.SecurityContextConstraints(agentjob.Options{Namespace: operatorNamespace, Privilege: privilege.Capabilities}))

	if present := presentIn(t, objects); len(present) != 0 {
		t.Fatalf("without any CRD got the objects %v, want none", present)
	}
	paths := append(crds.ConsoleAndMonitoring(t), crds.SCC(t))
	made, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: paths})
	if err != nil || len(made) != 5 {
		t.Fatalf("got %d CRDs (%v)", len(made), err)
	}
	t.Cleanup(func() { _ = envtest.UninstallCRDs(config, envtest.CRDInstallOptions{CRDs: made}) })
	if present := presentIn(t, objects); len(present) != len(objects) {
		t.Fatalf("got %d objects with an API, want %d", len(present), len(objects))
	}
	for _, o := range append(objects, platform.PriorityClass()) { // every cluster has the API of the last one
		t.Run(o.GetKind(), func(t *testing.T) { keeps(t, o, role) })
	}
}

// TestTwoObjectsOfOneKind: the manager keeps each of them in place, and watches it by name.
func TestTwoObjectsOfOneKind(t *testing.T) {
	ownerRole(t)
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	objects := []*unstructured.Unstructured{platform.PriorityClass(), platform.PriorityClass()}
	for i, name := range []string{"sonde-one", "sonde-two"} {
		objects[i].SetName(name)
		r := &platformcontroller.ObjectReconciler{
			Client: mgr.GetClient(), Live: admin, Desired: objects[i], Watchdog: &health.Watchdog{Limit: time.Minute, Clock: clock.RealClock{}},
		}
		if err := r.SetupWithManager(mgr); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), objects[i]) })
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for _, o := range objects {
		uid := func() types.UID {
			live := o.DeepCopy()
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), live); err != nil {
				return ""
			}
			return live.GetUID()
		}
		poll(t, o.GetName()+" is created", func() bool { return uid() != "" })
		before := uid()
		if err := admin.Delete(t.Context(), o.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		poll(t, o.GetName()+" is created again", func() bool { return uid() != "" && uid() != before })
	}
}

// presentIn discovers the APIs again, as a starting operator does.
func presentIn(t *testing.T, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	present, err := platform.Present(c.RESTMapper(), objects...)
	if err != nil {
		t.Fatal(err)
	}
	return present
}

// keeps checks that an object is created completely, with its owner, is not written again, and is repaired.
func keeps(t *testing.T, o *unstructured.Unstructured, owner client.Object) {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	r := &platformcontroller.ObjectReconciler{Client: c, Live: c, Desired: o, Watchdog: &health.Watchdog{Limit: time.Minute, Clock: clock.RealClock{}}}
	reconcile := func() *unstructured.Unstructured {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
			t.Fatal(err)
		}
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(o.GroupVersionKind())
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), live); err != nil {
			t.Fatal(err)
		}
		if refs := live.GetOwnerReferences(); !platform.Covers(o, live) || len(refs) != 1 || refs[0].UID != owner.GetUID() {
			t.Fatalf("the object is not as built: %v", live.Object)
		}
		return live
	}
	first := reconcile()
	if second := reconcile(); second.GetResourceVersion() != first.GetResourceVersion() {
		t.Error("the second pass over an unchanged world writes, want no write")
	}
	labels := first.GetLabels()
	labels["app.kubernetes.io/name"] = "of-another"
	first.SetLabels(labels)
	if err := c.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	reconcile()
	if err := c.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	reconcile()
}
