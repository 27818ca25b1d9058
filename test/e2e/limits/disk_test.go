//go:build e2e

package limits

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

const (
	// kubeletRoot is the folder of Pods' volumes on a node. With --node-disk it is a disk of the node's own.
	kubeletRoot = "/var/lib/kubelet"
	// agentsGone is how long the agents of an earlier test may take to disappear.
	agentsGone = 2 * time.Minute
)

// needNodeDisks fails the test if the nodes share the machine's disk, which no test may fill or freeze.
func needNodeDisks(t *testing.T) {
	t.Helper()
	for _, node := range cluster.NodeNames(t) {
		if out := cluster.OnNode(t, node, "sh", "-c", "df --output=source "+kubeletRoot+" | tail -n 1"); !strings.HasPrefix(out, "/dev/loop") {
			t.Fatalf("the disk of node %s is %q: want a disk of its own, because the test fills it (make cluster-down cluster-up NODE_DISK=2Gi)", node, strings.TrimSpace(out))
		}
	}
}

// tryOnNode is cluster.OnNode for commands that may fail.
func tryOnNode(ctx context.Context, node string, command ...string) error {
	out, err := exec.CommandContext(ctx, cluster.Command, append([]string{"node-exec", node, "--"}, command...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("on node %s: %v: %w: %s", node, command, err, out)
	}
	return err
}

// fillDisk fills a node's disk except for this many bytes until the test ends.
func fillDisk(t *testing.T, node string, left int64) {
	t.Helper()
	t.Cleanup(func() {
		_ = tryOnNode(context.WithoutCancel(t.Context()), node, "sh", "-c", "rm -f "+kubeletRoot+"/fill*")
	})
	cluster.OnNode(t, node, "sync", "-f", kubeletRoot) // what was deleted before is free only when that is on the disk
	cluster.OnNode(t, node, "fallocate", "-l", strconv.FormatInt(freeOnDisk(t, node)-left, 10), kubeletRoot+"/fill")
}

// fillDiskWhole leaves only the few blocks that probes free and reuse when they replace their reports.
func fillDiskWhole(t *testing.T, node string) {
	t.Helper()
	fillDisk(t, node, 4<<20)
	// Write single blocks, because the kernel refuses a larger write as a whole.
	cluster.Eventually(t, 30*time.Second, "disk full", func(ctx context.Context) error {
		if err := tryOnNode(ctx, node, "sh", "-c", "dd if=/dev/zero bs=4k of="+kubeletRoot+"/fill-$$ 2>/dev/null; sync -f "+kubeletRoot); err != nil {
			return err
		}
		if free := freeOnDisk(t, node); free > 64<<10 {
			return fmt.Errorf("%d bytes are still free", free)
		}
		return nil
	})
}

// freeOnDisk returns the number of free bytes on a node's disk.
func freeOnDisk(t *testing.T, node string) int64 {
	t.Helper()
	out := cluster.OnNode(t, node, "stat", "-f", "-c", "%a %S", kubeletRoot)
	var blocks, size int64
	if _, err := fmt.Sscan(out, &blocks, &size); err != nil {
		t.Fatalf("free space of node %s: %q: %v", node, out, err)
	}
	return blocks * size
}

// A full disk ends a capture as Incomplete with reason DiskFull. The file is complete up to that point and states its
// losses, and the keeper still serves it.
func TestLimitsDiskFull(t *testing.T) {
	needNodeDisks(t)
	cluster.ManagerFlag(t, "--disk-floor=0") // otherwise probes stop writing long before the disk is full
	cluster.NoAgents(t, agentsGone)
	ns := cluster.Namespace(t, nil)
	reader := cluster.MetricsReader(t, ns)
	o := newOverloaded(t, ns)
	before := cluster.ScrapeAll(t, reader)
	o.flood(t, 500, "-rate", "1000")
	for node, probes := range byNode(o.pods) {
		cluster.AwaitFlushed(t, node, probes, 500) // otherwise the disk may be full before the last of them is in the file
		fillDiskWhole(t, node)
	}
	o.flood(t, 20000, "-rate", "5000", "-size", "400")
	cluster.AwaitFinal(t, o.pc, time.Minute)
	if o.pc.Status.Phase != sondev1.PhaseIncomplete {
		t.Errorf("phase %s, want Incomplete: %+v", o.pc.Status.Phase, o.pc.Status)
	}
	got := cluster.Download(t, o.pc)
	for i := range o.pods {
		name := o.pods[i].Name
		e, c := cluster.Entry(t, o.pc, name), got[name]
		t.Logf("%s: %d sent, %d captured, dropped %+v, %s", name, o.sent[name], e.Packets, e.Dropped, e.Message)
		if e.Phase != sondev1.PhaseIncomplete || e.Reason != sondev1.ReasonDiskFull || e.Message == "" || e.AvailableUntil == nil {
			t.Errorf("%s: %+v, want Incomplete, DiskFull, a message and a file", name, e)
		}
		if e.Dropped.Writer == 0 || e.Packets < 500 || uint64(e.Packets+e.Dropped.Total()) > o.sent[name] { //nolint:gosec // small counts
			t.Errorf("%s: got %d captured and %+v dropped, want a sum of %d sent", name, e.Packets, e.Dropped, o.sent[name])
		}
		if int64(c.Packets) != e.Packets || int64(c.Received) != e.Packets+e.Dropped.Total() || int64(c.Dropped) != e.Dropped.Total() { //nolint:gosec // small counts
			t.Errorf("%s: the file has %d packets and states %d received, %d dropped; want the figures of the status %+v", name, c.Packets, c.Received, c.Dropped, e)
		}
		wantFirst(t, name, c, int(e.Packets))
	}
	wantMetrics(t, reader, before, o.pc)
}

// wantFirst fails unless the file holds exactly the first packets that the Pod sent: 500 of run 1, and then run 2.
func wantFirst(t *testing.T, name string, c cluster.Contents, packets int) {
	t.Helper()
	for i := range packets {
		run, seq := uint32(1), uint64(i) //nolint:gosec // a small count
		if i >= 500 {
			run, seq = 2, seq-500
		}
		if n := c.Numbers[run][seq]; n != 1 {
			t.Errorf("%s: got packet %d of run %d %d times, want once; %d packets in the file", name, seq, run, n, packets)
		}
	}
}

// A capture without traffic does not notice a full disk, but stopping it works and the status gives the reason.
func TestLimitsStopOnAFullDisk(t *testing.T) {
	needNodeDisks(t)
	cluster.ManagerFlag(t, "--disk-floor=0")
	ns := cluster.Namespace(t, nil)
	o := newOverloaded(t, ns)
	for node := range byNode(o.pods) {
		fillDiskWhole(t, node)
	}
	cluster.Stop(t, o.pc)
	for i := range o.pods {
		if e := cluster.Entry(t, o.pc, o.pods[i].Name); e.Phase != sondev1.PhaseCompleted || e.Reason != sondev1.ReasonStopped {
			t.Errorf("%s: %+v, want Completed, Stopped", o.pods[i].Name, e)
		}
	}
	cluster.Download(t, o.pc)
}
