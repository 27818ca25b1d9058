package target

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// TestUncached checks that a Pod that the cache does not have is found, by its owner, and that only objects with the workload's
// labels are read.
func TestUncached(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	web := map[string]string{"app": "web"}
	meta := func(name, owner string, labels map[string]string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: labels}
		if owner != "" {
			m.OwnerReferences = []metav1.OwnerReference{{UID: types.UID("uid-" + owner), Controller: new(true)}}
		}
		return m
	}
	pod := func(name, owner string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: meta(name, owner, labels), Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	}
	deployment := &appsv1.Deployment{ObjectMeta: meta("web", "", nil), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: web}}}
	set := &appsv1.ReplicaSet{ObjectMeta: meta("web-rs", "web", web)}
	cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(deployment).Build()
	read := 0
	live := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(deployment, set,
		pod("web-1", "web-rs", web), pod("foreign", "other", web), pod("elsewhere", "other", nil)).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if pods, ok := list.(*corev1.PodList); ok {
				read += len(pods.Items)
			}
			return err
		},
	})
	ref := sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: "web"}
	found, err := Resolve(t.Context(), Uncached(cached, live, "shop", ref), "shop", ref)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range found.Pods {
		names = append(names, p.GetName())
	}
	if diff := cmp.Diff([]string{"web-1"}, names); diff != "" || read != 4 {
		t.Errorf("%d Pods read, want 2 by owner and 2 by the owner's name; found (-want +got):\n%s", read, diff)
	}
}

// TestUncachedOfGoneWorkload checks that Pods that outlast their workload are found, also one that the cache does not have, or does not
// know to be deleted.
func TestUncachedOfGoneWorkload(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	pod := func(name, set string, finalizers ...string) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set, UID: "uid-of-a-set-that-is-gone", Controller: new(true)},
			}},
			Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		if p.Finalizers = finalizers; finalizers != nil {
			p.DeletionTimestamp = new(metav1.Unix(1772344800, 0))
		}
		return p
	}
	cached := fake.NewClientBuilder().WithScheme(scheme).Build()
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		pod("web-1", "web-5d8f9c"), pod("web-2", "web-5d8f9c", "example.com/kubelet"), pod("api-1", "web-api-5d8f9c")).Build()
	ref := sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: "web"}
	found, err := Resolve(t.Context(), Uncached(cached, live, "shop", ref), "shop", ref)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range found.Former {
		names = append(names, p.GetName())
	}
	if diff := cmp.Diff([]string{"web-1", "web-2"}, names); diff != "" || found.Found || len(found.Pods) > 0 {
		t.Errorf("found %v with %d Pods, want none; former Pods (-want +got):\n%s", found.Found, len(found.Pods), diff)
	}
}
