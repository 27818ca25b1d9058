//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// managerReplicas is what the manifests say.
const managerReplicas = 2

// manager returns the operator's Deployment.
func manager(t *testing.T) *appsv1.Deployment {
	t.Helper()
	var d appsv1.Deployment
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "sonde-manager"}, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// stopManager ends the operator and waits until its Pods are gone; the test's end starts it again.
func stopManager(t *testing.T) {
	t.Helper()
	d := manager(t)
	scale(t, d, 0)
	t.Cleanup(func() { startManager(t) })
	eventually(t, time.Minute, "manager gone", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := admin.List(ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("%d Pods", len(pods.Items))
		}
		return nil
	})
}

// startManager starts it and waits until it is ready and its webhook answers.
func startManager(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	var d appsv1.Deployment
	key := client.ObjectKey{Namespace: operatorNamespace, Name: "sonde-manager"}
	if err := admin.Get(ctx, key, &d); err != nil {
		t.Fatal(err)
	}
	d.Spec.Replicas = new(int32(managerReplicas))
	if err := admin.Update(ctx, &d); err != nil {
		t.Fatal(err)
	}
	awaitManager(ctx, t)
}

func awaitManager(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		var d appsv1.Deployment
		err := admin.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "sonde-manager"}, &d)
		if err == nil && allReady(&d) && noneLeaves(ctx, &d) && webhookInstalled(ctx) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the manager is not ready: %+v (%v)", d.Status, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// allReady says whether all replicas, and no others, are those of the newest template and ready.
func allReady(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration == d.Generation && s.ReadyReplicas == managerReplicas && s.UpdatedReplicas == managerReplicas && s.Replicas == managerReplicas
}

// noneLeaves says whether all Pods of before are gone: one that is told to end still leads for a moment, by its own flags.
func noneLeaves(ctx context.Context, d *appsv1.Deployment) bool {
	var pods corev1.PodList
	err := admin.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels))
	return err == nil && len(pods.Items) == managerReplicas
}

func webhookInstalled(ctx context.Context) bool {
	var list admissionregistrationv1.MutatingWebhookConfigurationList
	if err := admin.List(ctx, &list); err != nil {
		return false
	}
	return slices.ContainsFunc(list.Items, func(c admissionregistrationv1.MutatingWebhookConfiguration) bool { return c.Name == "sonde" })
}

// managerFlag runs the manager with one more flag for the time of the test.
func managerFlag(t *testing.T, flag string) {
	t.Helper()
	d := manager(t)
	before := slices.Clone(d.Spec.Template.Spec.Containers[0].Args)
	set := func(ctx context.Context, args []string) {
		var live appsv1.Deployment
		if err := admin.Get(ctx, client.ObjectKeyFromObject(d), &live); err != nil {
			t.Fatal(err)
		}
		live.Spec.Template.Spec.Containers[0].Args = args
		if err := admin.Update(ctx, &live); err != nil {
			t.Fatal(err)
		}
		awaitManager(ctx, t)
	}
	set(t.Context(), append(slices.Clone(before), flag))
	t.Cleanup(func() { set(context.WithoutCancel(t.Context()), before) })
}
