//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// 1 -> 5 -> 2 replicas and a rollout in mid-capture: every Pod that lived has its file, with its own numbered packets.
func TestScaleAndRollout(t *testing.T) {
	ns := namespace(t, nil)
	target := deployment(t, ns, "sink", 1, "sink")
	sender := pod(t, ns, "sender", podSpec("idle"))
	pc := capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", Filter: "udp"})

	sentTo := map[string]uint32{} // Pod -> run
	run := uint32(0)
	flood := func(n int) {
		pods := readyPods(t, target, n)
		awaitEntries(t, pc, pods)
		for i := range pods {
			if _, ok := sentTo[pods[i].Name]; ok {
				continue
			}
			run++
			sentTo[pods[i].Name] = run
			send(t, sender, udpAddr(pods[i].Status.PodIP), run, 500)
		}
	}
	flood(1)
	scale(t, target, 5)
	flood(5)
	scale(t, target, 2)
	flood(2)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"template":{"metadata":{"annotations":{"rolled":"out"}}}}}`))
	if err := admin.Patch(t.Context(), target, patch); err != nil {
		t.Fatal(err)
	}
	rolledOut(t, target, sentTo)
	flood(2)

	// Pods that left are Completed while the capture lasts.
	living := map[string]bool{}
	for _, p := range readyPods(t, target, 2) {
		living[p.Name] = true
	}
	eventually(t, 30*time.Second, "left Pods completed", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
			return err
		}
		for name := range sentTo {
			e := entry(t, pc, name)
			if !living[name] && (e.Phase != sondev1.PhaseCompleted || e.Reason != sondev1.ReasonTargetGone) {
				return fmt.Errorf("%s, which left, is %s (%s: %s)", name, e.Phase, e.Reason, e.Message)
			}
		}
		return nil
	})
	stop(t, pc)
	if pc.Status.Phase != sondev1.PhaseCompleted || int(pc.Status.Totals.Pods) != len(sentTo) {
		t.Errorf("phase %s, totals %+v, want Completed with %d Pods", pc.Status.Phase, pc.Status.Totals, len(sentTo))
	}
	got := download(t, pc)
	for name, run := range sentTo {
		different, n := got[name].Count(run)
		if different != 500 || n != 500 || len(got[name].Numbers) != 1 {
			t.Errorf("%s: %d numbers in %d packets of run %d, runs %d; want 500 of one run", name, different, n, run, len(got[name].Numbers))
		}
	}
}

// awaitEntries waits until a probe is attached to each of the Pods.
func awaitEntries(t *testing.T, capture sondev1.Capture, pods []corev1.Pod) {
	t.Helper()
	eventually(t, 60*time.Second, "probes attached", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(capture), capture); err != nil {
			return err
		}
		phases := map[string]sondev1.Phase{}
		for _, e := range capture.CaptureStatus().Pods {
			phases[e.Name] = e.Phase
		}
		for i := range pods {
			if phases[pods[i].Name] != sondev1.PhaseCapturing {
				return fmt.Errorf("%s is %q", pods[i].Name, phases[pods[i].Name])
			}
		}
		return nil
	})
}

// rolledOut waits until none of the old Pods is there.
func rolledOut(t *testing.T, d client.Object, old map[string]uint32) {
	t.Helper()
	eventually(t, 90*time.Second, "rollout", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := admin.List(ctx, &pods, client.InNamespace(d.GetNamespace()), client.MatchingLabels{"app": d.GetName()}); err != nil {
			return err
		}
		for i := range pods.Items {
			if _, ok := old[pods.Items[i].Name]; ok {
				return fmt.Errorf("%s is still there", pods.Items[i].Name)
			}
		}
		return nil
	})
}
