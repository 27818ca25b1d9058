//go:build e2e

package capture

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// A target scales 1 -> 5 -> 2 and rolls out during a capture. Each Pod that ran has a file with its own numbered
// packets.
func TestScaleAndRollout(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 1, "sink")
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", Filter: "udp"})

	sentTo := map[string]uint32{} // run by Pod
	run := uint32(0)
	flood := func(n int) {
		pods := cluster.ReadyPods(t, target, n)
		cluster.AwaitAttached(t, pc, pods)
		for i := range pods {
			if _, ok := sentTo[pods[i].Name]; ok {
				continue
			}
			run++
			sentTo[pods[i].Name] = run
			cluster.Send(t, sender, cluster.UDPAddr(pods[i].Status.PodIP), run, 500)
		}
	}
	flood(1)
	cluster.Scale(t, target, 5)
	flood(5)
	cluster.Scale(t, target, 2)
	flood(2)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"template":{"metadata":{"annotations":{"rolled":"out"}}}}}`))
	if err := cluster.Admin.Patch(t.Context(), target, patch); err != nil {
		t.Fatal(err)
	}
	rolledOut(t, target, sentTo)
	flood(2)

	// Deleted Pods are Completed while the capture goes on.
	living := map[string]bool{}
	for _, p := range cluster.ReadyPods(t, target, 2) {
		living[p.Name] = true
	}
	cluster.Eventually(t, 30*time.Second, "deleted Pods completed", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
			return err
		}
		for name := range sentTo {
			e := cluster.Entry(t, pc, name)
			if !living[name] && (e.Phase != sondev1.PhaseCompleted || e.Reason != sondev1.ReasonTargetGone) {
				return fmt.Errorf("deleted Pod %s is %s (%s: %s), want Completed", name, e.Phase, e.Reason, e.Message)
			}
		}
		return nil
	})
	cluster.Stop(t, pc)
	if pc.Status.Phase != sondev1.PhaseCompleted || int(pc.Status.Totals.Pods) != len(sentTo) {
		t.Errorf("phase %s, totals %+v, want Completed with %d Pods", pc.Status.Phase, pc.Status.Totals, len(sentTo))
	}
	got := cluster.Download(t, pc)
	for name, run := range sentTo {
		different, n := got[name].Count(run)
		if different != 500 || n != 500 || len(got[name].Numbers) != 1 {
			t.Errorf("%s: %d numbers in %d packets of run %d, runs %d; want 500 of one run", name, different, n, run, len(got[name].Numbers))
		}
	}
}

// rolledOut waits until all old Pods are gone.
func rolledOut(t *testing.T, d client.Object, old map[string]uint32) {
	t.Helper()
	cluster.Eventually(t, 90*time.Second, "rollout", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := cluster.Admin.List(ctx, &pods, client.InNamespace(d.GetNamespace()), client.MatchingLabels{"app": d.GetName()}); err != nil {
			return err
		}
		for i := range pods.Items {
			if _, ok := old[pods.Items[i].Name]; ok {
				return fmt.Errorf("Pod %s still exists", pods.Items[i].Name)
			}
		}
		return nil
	})
}
