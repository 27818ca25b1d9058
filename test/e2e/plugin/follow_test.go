//go:build e2e

package plugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/cluster"
)

// Three Pods, and a fourth one that joins: all numbered packets are in the stream while they are captured, in the order of time, and
// capinfos and tshark read it without a warning.
func TestPluginFollow(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	d := cluster.Deployment(t, ns, "sink", 3, "sink")
	pods := cluster.ReadyPods(t, d, 3)
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", Filter: fmt.Sprintf("udp port %d", cluster.UDPPort)})
	cluster.AwaitCapturing(t, pc)
	cmd, out, errOut := cluster.StartPlugin(t, "follow", pc.Name, "-n", ns)
	const count = 500
	for i := range pods {
		cluster.Send(t, sender, cluster.UDPAddr(pods[i].Status.PodIP), uint32(i+1), count) //nolint:gosec // three Pods
	}
	sent := time.Now()
	cluster.Eventually(t, 20*time.Second, "the packets are in the stream while the capture runs", func(context.Context) error {
		if n, _ := packetsIn(out.String()); n < 3*count {
			return fmt.Errorf("%d packets", n)
		}
		return nil
	})
	t.Logf("all are in the stream %s after they were sent", time.Since(sent).Round(100*time.Millisecond))
	cluster.Scale(t, d, 4)
	pods = cluster.ReadyPods(t, d, 4)
	cluster.AwaitAttached(t, pc, pods)
	for i := range pods {
		cluster.Send(t, sender, cluster.UDPAddr(pods[i].Status.PodIP), uint32(i+11), count) //nolint:gosec // four Pods
	}
	cluster.Stop(t, pc)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errOut)
	}
	if _, late := packetsIn(out.String()); late > 0 {
		t.Errorf("%d packets are out of the order of time", late)
	}
	file := filepath.Join(t.TempDir(), "stream.pcapng")
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	got := cluster.Read(t, file)
	for _, run := range []uint32{1, 2, 3, 11, 12, 13, 14} {
		if different, n := got.Count(run); different != count || n != count {
			t.Errorf("run %d: %d numbers in %d packets, want %d", run, different, n, count)
		}
	}
	if !strings.Contains(errOut.String(), "packets of 4 Pods") {
		t.Errorf("the plugin says %s", errOut)
	}
}

// packetsIn counts the packets of a stream that may end within a block, and those that are earlier than one before them.
func packetsIn(stream string) (n, late int) {
	r := pcapng.NewReader(strings.NewReader(stream))
	for last := uint64(0); ; {
		b, err := r.Next()
		if err != nil {
			return n, late
		}
		if p, ok := b.(*pcapng.Packet); ok {
			if n++; p.Time < last {
				late++
			}
			last = max(last, p.Time)
		}
	}
}

// What cannot be followed is refused with the next step.
func TestPluginFollowRefuses(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 1, "sink"), 1)
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m"})
	cluster.Stop(t, pc)
	cmd, _, errOut := cluster.StartPlugin(t, "follow", pc.Name, "-n", ns)
	if err := cmd.Wait(); err == nil || !strings.Contains(errOut.String(), "kubectl sonde download "+pc.Name) {
		t.Errorf("%v, %s", err, errOut)
	}
	cmd, _, errOut = cluster.StartPlugin(t, "follow", "missing", "-n", ns)
	if err := cmd.Wait(); err == nil || !strings.Contains(errOut.String(), "missing") {
		t.Errorf("%v, %s", err, errOut)
	}
}
