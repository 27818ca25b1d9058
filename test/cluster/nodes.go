package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Simulated is the label of simulated nodes, with the value kwok (cluster kwok). Pods on them only seem to run.
const Simulated = "type"

// NodeNames lists the cluster's nodes except simulated ones.
func NodeNames(t *testing.T) []string {
	t.Helper()
	var nodes corev1.NodeList
	if err := Admin.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range nodes.Items {
		if nodes.Items[i].Labels[Simulated] != "kwok" {
			names = append(names, nodes.Items[i].Name)
		}
	}
	return names
}

// OnNode runs a command inside a node of the local cluster.
func OnNode(t *testing.T, node string, command ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), Command, append([]string{"node-exec", node, "--"}, command...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("on node %s: %v: %v\n%s", node, command, err, out)
	}
	return string(out)
}

// Machine runs a command of the local cluster's program, for example node-stop.
func Machine(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), Command, args...).CombinedOutput(); err != nil {
		t.Fatalf("cluster %v: %v\n%s", args, err, out)
	}
}

// AwaitNotReady waits until Kubernetes has noticed that a node has stopped.
func AwaitNotReady(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Eventually(t, 3*time.Minute, "node NotReady", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("the node is still Ready")
	})
	return node
}

// KillProcess sends a signal to the one process of a Pod whose command line begins with command. It returns the process
// ID on the node.
func KillProcess(t *testing.T, p *corev1.Pod, signal, command string) uint32 {
	t.Helper()
	pid := ProcessOfPod(t, p, command)
	OnNode(t, p.Spec.NodeName, "kill", "-"+signal, strconv.Itoa(int(pid)))
	return pid
}

// ProcessOfPod returns the ID, on the node, of the one process of a Pod whose command line begins with command.
func ProcessOfPod(t *testing.T, p *corev1.Pod, command string) uint32 {
	t.Helper()
	uid := string(p.UID)
	// The systemd cgroup driver writes a Pod's UID with underscores.
	list := fmt.Sprintf(`for p in /proc/[0-9]*; do grep -q -e %s -e %s $p/cgroup && echo "${p#/proc/} $(tr '\0' ' ' <$p/cmdline)"; done 2>/dev/null; true`,
		uid, strings.ReplaceAll(uid, "-", "_"))
	var found []uint32
	all := OnNode(t, p.Spec.NodeName, "sh", "-c", list)
	for line := range strings.Lines(all) {
		number, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pid, err := strconv.ParseUint(number, 10, 32); err == nil && strings.HasPrefix(args, command) {
			found = append(found, uint32(pid))
		}
	}
	if len(found) != 1 {
		t.Fatalf("Pod %s has %d processes whose command begins with %q, want 1: %s", p.Name, len(found), command, all)
	}
	return found[0]
}
