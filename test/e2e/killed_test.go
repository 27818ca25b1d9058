//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// A probe that is killed leaves a valid file up to its last flush, and the status says Incomplete.
func TestKilledProbeIsIncomplete(t *testing.T) {
	ns := namespace(t, nil)
	target := deployment(t, ns, "sink", 2, "sink")
	pods := readyPods(t, target, 2)
	sender := pod(t, ns, "sender", podSpec("idle"))
	pc := capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp"})
	for i := range pods {
		send(t, sender, udpAddr(pods[i].Status.PodIP), uint32(i+1), 1000) //nolint:gosec // two Pods
	}
	awaitProgress(t, pc, pods[0].Name, 1000)
	killProbe(t, &pods[0])
	eventually(t, 30*time.Second, "killed Pod's entry final", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
			return err
		}
		if e := entry(t, pc, pods[0].Name); e.Phase != sondev1.PhaseIncomplete || e.Reason != sondev1.ReasonKilled {
			return fmt.Errorf("%+v", e)
		}
		return nil
	})
	stop(t, pc)
	if pc.Status.Phase != sondev1.PhaseIncomplete {
		t.Errorf("phase %s, want Incomplete", pc.Status.Phase)
	}
	if e := entry(t, pc, pods[1].Name); e.Phase != sondev1.PhaseCompleted {
		t.Errorf("the other Pod: %+v, want Completed", e)
	}
	got := download(t, pc)
	for i := range pods {
		if different, n := got[pods[i].Name].Count(uint32(i + 1)); different != 1000 || n != 1000 { //nolint:gosec // two Pods
			t.Errorf("%s: %d numbers in %d packets, want the 1000 that were flushed", pods[i].Name, different, n)
		}
	}
}

// awaitProgress waits until the file on the node holds so many packets, as the probe's own account tells.
func awaitProgress(t *testing.T, pc *sondev1.PacketCapture, pod string, packets int) {
	t.Helper()
	awaitFlushed(t, entry(t, pc, pod).Node, 1, packets)
}

// awaitFlushed waits until the files of so many probes of a node hold so many packets each.
func awaitFlushed(t *testing.T, node string, probes, packets int) {
	t.Helper()
	want := fmt.Sprintf(`"packets":%d`, packets)
	eventually(t, 20*time.Second, "flushed", func(context.Context) error {
		out := onNode(t, node, "sh", "-c", "cat /var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir/results/progress.json")
		if strings.Count(out, want) < probes {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// killProbe kills the probe of a Pod by SIGKILL.
func killProbe(t *testing.T, target *corev1.Pod) {
	t.Helper()
	signalProbe(t, target, "KILL")
}

// signalProbe sends a signal to the probe of a Pod, which must be there.
func signalProbe(t *testing.T, target *corev1.Pod, signal string) {
	t.Helper()
	sent := 0
	for line := range strings.Lines(onNode(t, target.Spec.NodeName, "ps", "-e", "-o", "pid,args")) {
		pid, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := strconv.Atoi(pid); err != nil || !strings.HasPrefix(strings.TrimSpace(args), "/agent probe") || !strings.Contains(args, string(target.UID)) {
			continue
		}
		onNode(t, target.Spec.NodeName, "kill", "-"+signal, pid)
		sent++
	}
	if sent != 1 {
		t.Fatalf("%d probes of %s got %s", sent, target.Name, signal)
	}
}
