//go:build e2e

package operations

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// A Pod that comes and goes while both replicas of the manager stand still has an entry, and the result is not complete. The
// control, a Pod that never has a node, has none.
func TestOpsPodBetweenPasses(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 1, "sink")
	control := cluster.Deployment(t, ns, "control", 1, "sink")
	first := cluster.ReadyPods(t, target, 1)[0]
	managers := cluster.ManagerPods(t)
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	other := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "control", Duration: "10m"})
	defer func() {
		for i := range managers {
			cluster.OnNode(t, managers[i].Spec.NodeName, "sh", "-c", "kill -CONT $(pidof manager) || true")
		}
	}()
	for i := range managers {
		signalManager(t, &managers[i], "STOP")
	}
	cluster.Scale(t, target, 2)
	pods := cluster.ReadyPods(t, target, 2)
	gone := pods[slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name != first.Name })]
	deleteAtOnce(t, &gone)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"template":{"spec":{"nodeSelector":{"no":"node"}}}}}`))
	if err := cluster.Admin.Patch(t.Context(), control, patch); err != nil {
		t.Fatal(err)
	}
	deleteAtOnce(t, unscheduled(t, ns))
	for i := range managers {
		signalManager(t, &managers[i], "CONT")
	}
	cluster.AwaitAttached(t, pc, cluster.ReadyPods(t, target, 2))
	cluster.Stop(t, pc)
	restarted := 0
	for i := range managers {
		var now corev1.Pod
		if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(&managers[i]), &now); err != nil {
			t.Fatal(err)
		}
		restarted += int(now.Status.ContainerStatuses[0].RestartCount - managers[i].Status.ContainerStatuses[0].RestartCount)
	}
	i := slices.IndexFunc(pc.Status.Pods, func(e sondev1.PodResult) bool { return e.UID == string(gone.UID) })
	t.Logf("%d managers were restarted meanwhile; phase %s, unwatched %v, entries %+v", restarted, pc.Status.Phase, pc.Status.Unwatched, pc.Status.Pods)
	switch {
	case i >= 0 && (pc.Status.Pods[i].Phase != sondev1.PhaseFailed || pc.Status.Pods[i].Reason != sondev1.ReasonTargetGone || pc.Status.Phase != sondev1.PhaseIncomplete):
		t.Errorf("the entry of the Pod that came and went is %+v, phase %s", pc.Status.Pods[i], pc.Status.Phase)
	case i < 0 && (restarted < len(managers) || len(pc.Status.Unwatched) == 0):
		t.Errorf("Pod %s, created at %s and gone, has no entry", gone.Name, gone.CreationTimestamp)
	}
	cluster.Stop(t, other)
	if other.Status.Phase != sondev1.PhaseCompleted || len(other.Status.Pods) != 1 {
		t.Errorf("control: phase %s, entries %+v, want one Pod that is Completed", other.Status.Phase, other.Status.Pods)
	}
}

// deleteAtOnce removes a Pod without its grace period.
func deleteAtOnce(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if err := cluster.Admin.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	cluster.Gone(t, p, 30*time.Second)
}

// unscheduled returns a Pod of the namespace that has no node.
func unscheduled(t *testing.T, ns string) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	cluster.Eventually(t, 30*time.Second, "a Pod without a node", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := cluster.Admin.List(ctx, &pods, client.InNamespace(ns)); err != nil {
			return err
		}
		i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == "" })
		if i < 0 {
			return fmt.Errorf("all of %d Pods have a node", len(pods.Items))
		}
		found = &pods.Items[i]
		return nil
	})
	return found
}
