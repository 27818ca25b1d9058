//go:build e2e

package plugin

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// goalLatency is the goal for the median time from a packet to its line in tshark.
const goalLatency = 500 * time.Millisecond

// TestPluginFollowLatency logs how long after a packet its line appears in tshark, with a short --delay. All nodes have the clock of the
// machine.
func TestPluginFollowLatency(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	sink := cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 1, "sink"), 1)[0]
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", Filter: fmt.Sprintf("udp port %d", cluster.UDPPort)})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	follow := exec.CommandContext(t.Context(), cluster.Plugin, "follow", pc.Name, "-n", ns, "--delay", "50ms")
	tshark := exec.CommandContext(t.Context(), "tshark", "-n", "-l", "-i", "-", "-T", "fields", "-e", "frame.time_epoch")
	follow.Stdout, tshark.Stdin = w, r
	lines, err := tshark.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{follow, tshark} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = r.Close(), w.Close()
	times := make(chan []time.Duration, 1)
	go func() {
		var all []time.Duration
		for s := bufio.NewScanner(lines); s.Scan(); {
			now := time.Now()
			if at, err := strconv.ParseFloat(strings.TrimSpace(s.Text()), 64); err == nil {
				all = append(all, now.Sub(time.Unix(0, int64(at*1e9))))
			}
		}
		times <- all
	}()
	cluster.Send(t, sender, cluster.UDPAddr(sink.Status.PodIP), 1, 60, "-rate", "5")
	cluster.Stop(t, pc)
	if err := follow.Wait(); err != nil {
		t.Error(err)
	}
	all := <-times
	_ = tshark.Wait()
	all = all[min(5, len(all)):] // tshark starts meanwhile
	if len(all) < 50 {
		t.Fatalf("%d lines", len(all))
	}
	slices.Sort(all)
	t.Logf("from a packet to its line in tshark: median %s (goal %s), 95%% within %s, %d packets",
		all[len(all)/2].Round(time.Millisecond), goalLatency, all[len(all)*95/100].Round(time.Millisecond), len(all))
}
