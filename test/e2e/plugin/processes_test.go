//go:build e2e

package plugin

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
	"github.com/sonde-operator/sonde/test/wireshark"
)

// Each packet of a capture with processes names the process that gets it, with its PID on the node and its container. The status counts
// these packets.
func TestPluginProcesses(t *testing.T) {
	if cluster.Engine == sondev1.EngineAFPacket {
		t.Skip("afpacket cannot name processes: the webhook refuses the capture")
	}
	ns := cluster.Namespace(t, nil)
	pods := cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 2, "sink"), 2)
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{
		TargetDeployment: "sink", Duration: "10m", Filter: fmt.Sprintf("udp port %d", cluster.UDPPort), Processes: true,
	})
	const count = 500
	for i := range pods {
		cluster.Send(t, sender, cluster.UDPAddr(pods[i].Status.PodIP), uint32(i+1), count) //nolint:gosec // two Pods
	}
	cluster.Stop(t, pc)
	file := filepath.Join(t.TempDir(), "saved.pcapng")
	if out, err := exec.CommandContext(t.Context(), cluster.Plugin, "download", pc.Name, "-n", ns, "-o", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cluster.NoWarning(t, file)
	// Wireshark's other programs read the names, the comments and the custom options, too.
	merged, edited := filepath.Join(t.TempDir(), "merged.pcapng"), filepath.Join(t.TempDir(), "edited.pcapng")
	for _, said := range []string{wireshark.Run(t, "mergecap", "-w", merged, file, file), wireshark.Run(t, "editcap", file, edited)} {
		if said != "" {
			t.Errorf("mergecap or editcap says %s", said)
		}
	}
	cluster.NoWarning(t, merged)
	cluster.NoWarning(t, edited)
	comments := wireshark.Run(t, "tshark", "-r", file, "-T", "fields", "-e", "frame.comment")
	for i := range pods {
		pid := cluster.ProcessOfPod(t, &pods[i], "/workload")
		want := fmt.Sprintf("process: workload, pid %d, uid 65532, container c\n", pid)
		if n := strings.Count(comments, want); n != count {
			first, _, _ := strings.Cut(comments, "\n")
			t.Errorf("%d packets have %q, want %d; the first one has %q", n, want, count, first)
		}
	}
	for _, p := range pc.Status.Pods {
		if p.Processes == nil || p.Processes.Named != count || p.Processes.Message != "" {
			t.Errorf("the status of %s says %+v, want %d named packets", p.Name, p.Processes, count)
		}
	}
}
