//go:build e2e

package limits

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

const (
	// The floor of this test, and the free space above the floor when the flood starts. It is less than the volume of
	// the flood.
	testFloor  = 600 << 20
	aboveFloor = 48 << 20
)

// Several captures at once flood the disks of their nodes. Samples from inside the nodes show that the free space never
// falls below the floor. Each capture ends Incomplete with reason DiskFull and says how much is free and what to do.
func TestLimitsFloor(t *testing.T) {
	needNodeDisks(t)
	cluster.ManagerFlag(t, "--disk-floor="+strconv.Itoa(testFloor))
	cluster.NoAgents(t, agentsGone)
	o := newOverloaded(t, cluster.Namespace(t, nil))
	var lowest []func() int64
	for node := range byNode(o.pods) {
		fillDisk(t, node, testFloor+aboveFloor)
		lowest = append(lowest, watchDisk(t, node))
	}
	o.flood(t, 60000, "-rate", "4000", "-size", "1400") // 84 MB of each of two Pods on a node
	cluster.AwaitFinal(t, o.pc, time.Minute)
	for _, least := range lowest {
		if free := least(); free < testFloor || free > testFloor+aboveFloor/4 {
			t.Errorf("the smallest free space was %d bytes, want at least %d and not much more", free, testFloor)
		}
	}
	got := cluster.Download(t, o.pc)
	for i := range o.pods {
		name := o.pods[i].Name
		e, c := cluster.Entry(t, o.pc, name), got[name]
		t.Logf("%s: %d sent, %d captured, dropped %+v, %s", name, o.sent[name], e.Packets, e.Dropped, e.Message)
		if e.Phase != sondev1.PhaseIncomplete || e.Reason != sondev1.ReasonDiskFull || !strings.Contains(e.Message, "captures leave 600.0 MiB (--disk-floor") {
			t.Errorf("%s: %+v, want Incomplete, DiskFull and the numbers", name, e)
		}
		if e.Packets == 0 || int64(c.Packets) != e.Packets || int64(c.Received) != e.Packets+e.Dropped.Total() { //nolint:gosec // small counts
			t.Errorf("%s: the file has %d packets and states %d received, want the figures of the status %+v", name, c.Packets, c.Received, e)
		}
	}
}

// watchDisk samples the free space of a node's disk many times a second. The returned function stops that and returns
// the smallest sample.
func watchDisk(t *testing.T, node string) func() int64 {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(end)
	script := fmt.Sprintf("while :; do stat -f -c '%%a %%S' %s; sleep 0.02; done", kubeletRoot)
	watch := exec.CommandContext(ctx, cluster.Command, "node-exec", node, "--", "sh", "-c", script)
	watch.Cancel = func() error { return watch.Process.Signal(os.Interrupt) }
	watch.WaitDelay = 5 * time.Second
	var out strings.Builder
	watch.Stdout = &out
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	return func() int64 {
		t.Helper()
		end()
		_ = watch.Wait() // it gets SIGTERM
		least, samples := int64(-1), 0
		for line := range strings.Lines(out.String()) {
			var blocks, size int64
			if _, err := fmt.Sscan(line, &blocks, &size); err != nil {
				continue // the last line may be cut
			}
			if samples++; least < 0 || blocks*size < least {
				least = blocks * size
			}
		}
		t.Logf("%s: %d samples, at least %d bytes free", node, samples, least)
		if samples < 100 {
			t.Errorf("got only %d samples of the free space of %s", samples, node)
		}
		return least
	}
}
