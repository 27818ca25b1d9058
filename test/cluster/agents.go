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
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// AgentProcesses lists the command lines of the agents that run on any node.
func AgentProcesses(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, node := range NodeNames(t) {
		for line := range strings.Lines(OnNode(t, node, "ps", "-e", "-o", "args")) {
			if strings.HasPrefix(line, "/agent ") {
				found = append(found, node+": "+strings.TrimSpace(line))
			}
		}
	}
	return found
}

// NoAgents waits until no probe or keeper runs on any node.
func NoAgents(t *testing.T, within time.Duration) {
	t.Helper()
	Eventually(t, within, "no agent on any node", func(context.Context) error {
		if left := AgentProcesses(t); len(left) > 0 {
			return fmt.Errorf("agents still run: %v", left)
		}
		return nil
	})
}

// AgentPod returns the name of the first agent Pod of a capture.
func AgentPod(t *testing.T, capture sondev1.Capture) string {
	t.Helper()
	var pods corev1.PodList
	if err := Admin.List(t.Context(), &pods, client.InNamespace(OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(capture.GetUID())}); err != nil || len(pods.Items) == 0 {
		t.Fatalf("list agent Pods: got %d, error %v", len(pods.Items), err)
	}
	return pods.Items[0].Name
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

// AwaitProgress waits until the Pod's file on the node holds this many packets, according to the probe's progress
// report.
func AwaitProgress(t *testing.T, pc *sondev1.PacketCapture, pod string, packets int) {
	t.Helper()
	AwaitFlushed(t, Entry(t, pc, pod).Node, 1, packets)
}

// AwaitFlushed waits until the files of this many probes on a node hold this many packets each.
func AwaitFlushed(t *testing.T, node string, probes, packets int) {
	t.Helper()
	want := fmt.Sprintf(`"packets":%d`, packets)
	Eventually(t, 20*time.Second, "packets flushed to the file", func(context.Context) error {
		out := OnNode(t, node, "sh", "-c", "cat /var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir/results/progress.json")
		if strings.Count(out, want) < probes {
			return fmt.Errorf("progress is %s, want %d times %s", out, probes, want)
		}
		return nil
	})
}

// KillProbe kills the probe of a Pod with SIGKILL.
func KillProbe(t *testing.T, target *corev1.Pod) {
	t.Helper()
	SignalProbe(t, target, "KILL")
}

// SignalProbe sends a signal to the probe of a Pod. The test fails unless there is exactly one.
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
		t.Fatalf("%d probes of %s got signal %s, want 1", sent, target.Name, signal)
	}
}
