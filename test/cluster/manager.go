package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ManagerReplicas is the number of replicas in the manifests.
const ManagerReplicas = 2

// Manager returns the operator's Deployment.
func Manager(t *testing.T) *appsv1.Deployment {
	t.Helper()
	var d appsv1.Deployment
	if err := Admin.Get(t.Context(), client.ObjectKey{Namespace: OperatorNamespace, Name: "sonde-manager"}, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// StopManager scales the operator to zero and waits until its Pods are gone. The end of the test starts it again.
func StopManager(t *testing.T) {
	t.Helper()
	d := Manager(t)
	Scale(t, d, 0)
	t.Cleanup(func() { StartManager(t) })
	Eventually(t, time.Minute, "manager stopped", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := Admin.List(ctx, &pods, client.InNamespace(OperatorNamespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("%d Pods are left", len(pods.Items))
		}
		return nil
	})
}

// StartManager starts the operator and waits until it is ready and its webhook answers.
func StartManager(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	var d appsv1.Deployment
	key := client.ObjectKey{Namespace: OperatorNamespace, Name: "sonde-manager"}
	if err := Admin.Get(ctx, key, &d); err != nil {
		t.Fatal(err)
	}
	d.Spec.Replicas = new(int32(ManagerReplicas))
	if err := Admin.Update(ctx, &d); err != nil {
		t.Fatal(err)
	}
	AwaitManager(ctx, t)
}

// AwaitManager waits until all replicas run the newest template and are ready, and the webhook is installed.
func AwaitManager(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		var d appsv1.Deployment
		err := Admin.Get(ctx, client.ObjectKey{Namespace: OperatorNamespace, Name: "sonde-manager"}, &d)
		if err == nil && AllReady(&d) && OldPodsGone(ctx, &d) && WebhookInstalled(ctx) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the manager is not ready: %+v (%v)", d.Status, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// AllReady reports whether all replicas run the newest template and are ready, and no others exist.
func AllReady(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration == d.Generation && s.ReadyReplicas == ManagerReplicas && s.UpdatedReplicas == ManagerReplicas && s.Replicas == ManagerReplicas
}

// OldPodsGone reports whether all Pods of earlier templates are gone. A terminating Pod still leads for a moment, with
// its own flags.
func OldPodsGone(ctx context.Context, d *appsv1.Deployment) bool {
	var pods corev1.PodList
	err := Admin.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels))
	return err == nil && len(pods.Items) == ManagerReplicas
}

// WebhookInstalled reports whether the webhook configuration of Sonde's kinds exists.
func WebhookInstalled(ctx context.Context) bool {
	var list admissionregistrationv1.MutatingWebhookConfigurationList
	if err := Admin.List(ctx, &list); err != nil {
		return false
	}
	return slices.ContainsFunc(list.Items, func(c admissionregistrationv1.MutatingWebhookConfiguration) bool { return c.Name == "sonde" })
}

// ManagerFlag runs the manager with one more flag until the test ends.
func ManagerFlag(t *testing.T, flag string) {
	t.Helper()
	d := Manager(t)
	before := slices.Clone(d.Spec.Template.Spec.Containers[0].Args)
	set := func(ctx context.Context, args []string) {
		var live appsv1.Deployment
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(d), &live); err != nil {
			t.Fatal(err)
		}
		live.Spec.Template.Spec.Containers[0].Args = args
		if err := Admin.Update(ctx, &live); err != nil {
			t.Fatal(err)
		}
		AwaitManager(ctx, t)
	}
	set(t.Context(), append(slices.Clone(before), flag))
	t.Cleanup(func() { set(context.WithoutCancel(t.Context()), before) })
}

// ManagerPods returns the replicas that are ready and not terminating.
func ManagerPods(t *testing.T) []corev1.Pod {
	t.Helper()
	return ReadyPods(t, Manager(t), ManagerReplicas)
}

// Reinstall installs the operator again and waits until it is ready.
func Reinstall(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if out, err := exec.CommandContext(ctx, InstallCommand).CombinedOutput(); err != nil {
		t.Fatalf("reinstall: %v\n%s", err, out)
	}
	AwaitManager(ctx, t)
}
