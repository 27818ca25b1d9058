package cluster

import (
	"context"
	"fmt"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// ManagerReplicas is what the manifests say.
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

// StopManager ends the operator and waits until its Pods are gone; the test's end starts it again.
func StopManager(t *testing.T) {
	t.Helper()
	d := Manager(t)
	Scale(t, d, 0)
	t.Cleanup(func() { StartManager(t) })
	Eventually(t, time.Minute, "manager gone", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := Admin.List(ctx, &pods, client.InNamespace(OperatorNamespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("%d Pods", len(pods.Items))
		}
		return nil
	})
}

// StartManager starts it and waits until it is ready and its webhook answers.
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

// AwaitManager waits until all replicas are of the newest template and ready, and the webhook is installed.
func AwaitManager(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		var d appsv1.Deployment
		err := Admin.Get(ctx, client.ObjectKey{Namespace: OperatorNamespace, Name: "sonde-manager"}, &d)
		if err == nil && AllReady(&d) && NoneLeaves(ctx, &d) && WebhookInstalled(ctx) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the manager is not ready: %+v (%v)", d.Status, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// AllReady says whether all replicas, and no others, are those of the newest template and ready.
func AllReady(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration == d.Generation && s.ReadyReplicas == ManagerReplicas && s.UpdatedReplicas == ManagerReplicas && s.Replicas == ManagerReplicas
}

// NoneLeaves says whether all Pods of before are gone: one that is told to end still leads for a moment, by its own flags.
func NoneLeaves(ctx context.Context, d *appsv1.Deployment) bool {
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

// ManagerFlag runs the manager with one more flag for the time of the test.
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

// ManagerPods returns the replicas that are ready and not on their way out.
func ManagerPods(t *testing.T) []corev1.Pod {
	t.Helper()
	return ReadyPods(t, Manager(t), ManagerReplicas)
}

// ProbePrivilege runs the manager with a setting for the time of the test. Before and after it returns
// when a manager of that setting leads: until then the one before makes Jobs, and keeps the constraints.
func ProbePrivilege(t *testing.T, setting privilege.Setting) {
	t.Helper()
	t.Cleanup(func() { AwaitSetting(context.WithoutCancel(t.Context()), t, privilege.Privileged) }) // after managerFlag's own
	ManagerFlag(t, "--probe-privilege="+string(setting))
	AwaitSetting(t.Context(), t, setting)
}

// AwaitSetting waits for the leader and, where the cluster has them, the constraints of a setting.
func AwaitSetting(ctx context.Context, t *testing.T, setting privilege.Setting) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := SettingIs(ctx, setting)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("setting %s is not in force: %v", setting, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// SettingIs returns an error unless a manager with this privilege setting leads.
func SettingIs(ctx context.Context, setting privilege.Setting) error {
	var lease coordinationv1.Lease
	if err := Admin.Get(ctx, client.ObjectKey{Namespace: OperatorNamespace, Name: "sonde-manager"}, &lease); err != nil {
		return err
	}
	name, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	var leader corev1.Pod
	if err := Admin.Get(ctx, client.ObjectKey{Namespace: OperatorNamespace, Name: name}, &leader); err != nil {
		return fmt.Errorf("leader %q: %w", name, err)
	}
	restricted := slices.Contains(leader.Spec.Containers[0].Args, "--probe-privilege="+string(privilege.Capabilities))
	if leader.DeletionTimestamp != nil || restricted != (setting == privilege.Capabilities) {
		return fmt.Errorf("%s leads, with %v", name, leader.Spec.Containers[0].Args)
	}
	live, err := LiveSCC(ctx)
	switch {
	case apimeta.IsNoMatchError(err):
		return nil
	case err != nil:
		return err
	case !platform.Covers(WantedSCC(setting), live) || len(live.GetOwnerReferences()) != 1:
		return fmt.Errorf("constraints are %v", live.Object)
	}
	return nil
}

// Reinstall installs the operator again and waits until it is ready.
func Reinstall(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if out, err := osexec.CommandContext(ctx, InstallCommand).CombinedOutput(); err != nil {
		t.Fatalf("install again: %v\n%s", err, out)
	}
	AwaitManager(ctx, t)
}
