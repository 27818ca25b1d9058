package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// AwaitAttached waits until a probe is attached to each of the Pods.
func AwaitAttached(t *testing.T, capture sondev1.Capture, pods []corev1.Pod) {
	t.Helper()
	Eventually(t, 60*time.Second, "probes attached", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(capture), capture); err != nil {
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

// AwaitProgress waits until the file on the node holds so many packets, as the probe's own account tells.
func AwaitProgress(t *testing.T, pc *sondev1.PacketCapture, pod string, packets int) {
	t.Helper()
	AwaitFlushed(t, Entry(t, pc, pod).Node, 1, packets)
}

// AwaitFlushed waits until the files of so many probes of a node hold so many packets each.
func AwaitFlushed(t *testing.T, node string, probes, packets int) {
	t.Helper()
	want := fmt.Sprintf(`"packets":%d`, packets)
	Eventually(t, 20*time.Second, "flushed", func(context.Context) error {
		out := OnNode(t, node, "sh", "-c", "cat /var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir/results/progress.json")
		if strings.Count(out, want) < probes {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// KillProbe kills the probe of a Pod by SIGKILL.
func KillProbe(t *testing.T, target *corev1.Pod) {
	t.Helper()
	SignalProbe(t, target, "KILL")
}

// SignalProbe sends a signal to the probe of a Pod, which must be there.
func SignalProbe(t *testing.T, target *corev1.Pod, signal string) {
	t.Helper()
	sent := 0
	for line := range strings.Lines(OnNode(t, target.Spec.NodeName, "ps", "-e", "-o", "pid,args")) {
		pid, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := strconv.Atoi(pid); err != nil || !strings.HasPrefix(strings.TrimSpace(args), "/agent probe") || !strings.Contains(args, string(target.UID)) {
			continue
		}
		OnNode(t, target.Spec.NodeName, "kill", "-"+signal, pid)
		sent++
	}
	if sent != 1 {
		t.Fatalf("%d probes of %s got %s", sent, target.Name, signal)
	}
}

// AgentPod returns the name of the first agent Pod of a capture.
func AgentPod(t *testing.T, capture sondev1.Capture) string {
	t.Helper()
	var pods corev1.PodList
	if err := Admin.List(t.Context(), &pods, client.InNamespace(OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(capture.GetUID())}); err != nil || len(pods.Items) == 0 {
		t.Fatalf("no agent's Pod: %v", err)
	}
	return pods.Items[0].Name
}

// WantNotAdmitted fails the test unless the capture was refused for this reason, with a message.
func WantNotAdmitted(t *testing.T, pc *sondev1.PacketCapture, reason string) {
	t.Helper()
	c := apimeta.FindStatusCondition(pc.Status.Conditions, sondev1.ConditionAdmitted)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason || c.Message == "" {
		t.Errorf("condition Admitted = %+v, want False with reason %s and a message", c, reason)
	}
}

// JobsOf lists the agent Jobs of a capture.
func JobsOf(t *testing.T, capture sondev1.Capture) []batchv1.Job {
	t.Helper()
	var list batchv1.JobList
	if err := Admin.List(t.Context(), &list, client.InNamespace(OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(capture.GetUID())}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}
