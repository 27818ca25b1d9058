package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// KillProcess sends a signal to the one process of a Pod whose command line begins so, and returns its number on the node.
func KillProcess(t *testing.T, p *corev1.Pod, signal, command string) uint32 {
	t.Helper()
	pid := ProcessOfPod(t, p, command)
	OnNode(t, p.Spec.NodeName, "kill", "-"+signal, strconv.Itoa(int(pid)))
	return pid
}

// ProcessOfPod finds the one process of a Pod whose command line begins so.
func ProcessOfPod(t *testing.T, p *corev1.Pod, command string) uint32 {
	t.Helper()
	uid := string(p.UID)
	// The systemd driver writes a Pod's UID with other signs.
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
		t.Fatalf("%d processes of %s are %q: %s", len(found), p.Name, command, all)
	}
	return found[0]
}
