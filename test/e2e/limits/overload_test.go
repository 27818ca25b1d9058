//go:build e2e

package limits

import (
	"context"
	"sync"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// leastRing is the smallest ring for packets that the manager gives a probe.
const leastRing = "--ring-bytes=1048576"

// overloaded is a capture of several Pods on two nodes. Each Pod sends numbered packets itself.
type overloaded struct {
	pc   *sondev1.PacketCapture
	pods []corev1.Pod
	sink string
	sent map[string]uint64
	runs uint32
}

// Forced overload: nothing can be written for a while, and more packets arrive than the smallest ring holds. Each Pod's
// sender knows how many it sent. Each of these packets is either captured or counted as lost, and file, status and
// metrics agree.
func TestLimitsOverload(t *testing.T) {
	needNodeDisks(t)
	cluster.ManagerFlag(t, leastRing)
	for name, tc := range map[string]struct {
		hang, goOn func(*testing.T, []corev1.Pod)
	}{
		"hung disk": {hang: freezeDisks, goOn: thawDisks},
		"probe without a CPU": {
			hang: func(t *testing.T, pods []corev1.Pod) { t.Helper(); signalProbes(t, pods, "STOP") },
			goOn: func(t *testing.T, pods []corev1.Pod) { t.Helper(); signalProbes(t, pods, "CONT") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster.NoAgents(t, agentsGone) // so that the test counts only its own packets
			ns := cluster.Namespace(t, nil)
			reader := cluster.MetricsReader(t, ns)
			o := newOverloaded(t, ns)
			before := cluster.ScrapeAll(t, reader)
			o.flood(t, 500, "-rate", "1000")
			tc.hang(t, o.pods)
			// Twice what the ring and the probe's buffer for the disk (bufferLen of agents/node/disk) hold.
			o.flood(t, 40000, "-rate", "0", "-size", "400")
			tc.goOn(t, o.pods)
			o.flood(t, 2000, "-rate", "1000") // it goes on as before
			cluster.Stop(t, o.pc)
			if o.pc.Status.Phase != sondev1.PhaseCompleted {
				t.Errorf("phase %s, want Completed, because all losses are counted: %+v", o.pc.Status.Phase, o.pc.Status)
			}
			o.wantExact(t)
			o.wantLost(t, 10)
			wantMetrics(t, reader, before, o.pc)
		})
	}
}

func newOverloaded(t *testing.T, ns string) *overloaded {
	t.Helper()
	o := &overloaded{sent: map[string]uint64{}}
	target := cluster.Deployment(t, ns, "sender", 4, "idle")
	o.pods = cluster.ReadyPods(t, target, 4)
	if perNode := byNode(o.pods); len(perNode) != 2 {
		t.Fatalf("Pods per node %v: the test needs two nodes (make cluster-up NODES=2)", perNode)
	}
	o.sink = cluster.UDPAddr(cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 1, "sink"), 1)[0].Status.PodIP)
	o.pc = cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{
		TargetDeployment: "sender", Duration: "5m", Filter: "udp port 9999",
		MaxBytes:   128 << 20,  // the agents request that much of the node's small disk
		FollowPods: new(false), // it ends when its four Pods' captures have ended
	})
	return o
}

// flood makes each Pod send this many packets at once. A packet that a Pod sends passes its interface, even if it is
// lost later.
func (o *overloaded) flood(t *testing.T, count int, extra ...string) {
	t.Helper()
	o.runs++
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := range o.pods {
		all.Go(func() {
			s, err := cluster.TrySend(t.Context(), &o.pods[i], o.sink, o.runs, count, extra...)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			o.sent[o.pods[i].Name] += s.Count
		})
	}
	all.Wait()
}

// wantExact compares the packets that each Pod sent with the figures in status and file, and the file's packets with
// those figures.
func (o *overloaded) wantExact(t *testing.T) {
	t.Helper()
	got := cluster.Download(t, o.pc)
	for name, sent := range o.sent {
		e, c := cluster.Entry(t, o.pc, name), got[name]
		packets, lost := uint64(e.Packets), uint64(e.Dropped.Total()) //nolint:gosec // the API has no negative counts
		t.Logf("%s on %s: %d sent, %d captured, dropped %+v", name, e.Node, sent, packets, e.Dropped)
		if packets+lost != sent {
			t.Errorf("%s: the status has %d captured and %d lost, want a sum of %d sent", name, packets, lost, sent)
		}
		if c.Received != sent || c.Dropped != lost || c.Delivered != packets {
			t.Errorf("%s: the file's statistics state %d received, %d dropped, %d delivered, want %d, %d, %d",
				name, c.Received, c.Dropped, c.Delivered, sent, lost, packets)
		}
		different, numbered := 0, 0
		for run := uint32(1); run <= o.runs; run++ {
			d, n := c.Count(run)
			different, numbered = different+d, numbered+n
		}
		if uint64(c.Packets) != packets || uint64(different) != packets || numbered != different { //nolint:gosec // counts
			t.Errorf("%s: got %d packets in the file, %d numbered with %d different numbers, want %d each", name, c.Packets, numbered, different, packets)
		}
	}
	if len(got) != len(o.sent) {
		t.Errorf("got %d files, want %d", len(got), len(o.sent))
	}
}

// wantLost fails unless each Pod lost this percentage of its packets. With fewer, the test did not overload the probes.
func (o *overloaded) wantLost(t *testing.T, percent uint64) {
	t.Helper()
	for name, sent := range o.sent {
		if lost := uint64(cluster.Entry(t, o.pc, name).Dropped.Total()); lost*100 < sent*percent { //nolint:gosec // the API has no negative counts
			t.Errorf("%s lost %d of %d packets, want more: the test did not overload the probe", name, lost, sent)
		}
	}
}

// wantMetrics compares the growth of the manager's counters with the status of the one capture that ended.
func wantMetrics(t *testing.T, token string, before map[string]float64, pc *sondev1.PacketCapture) {
	t.Helper()
	var d sondev1.Dropped
	for i := range pc.Status.Pods {
		e := &pc.Status.Pods[i].Dropped
		d.Kernel, d.Ring, d.Writer = d.Kernel+e.Kernel, d.Ring+e.Ring, d.Writer+e.Writer
	}
	if d.Total() != pc.Status.Totals.Dropped {
		t.Errorf("totals have %d dropped, want the sum of the Pods %+v", pc.Status.Totals.Dropped, d)
	}
	after := cluster.ScrapeAll(t, token)
	for series, want := range map[string]int64{
		"sonde_packets_total":                           pc.Status.Totals.Packets,
		`sonde_dropped_packets_total{place="kernel"}`:   d.Kernel,
		`sonde_dropped_packets_total{place="ring"}`:     d.Ring,
		`sonde_dropped_packets_total{place="writer"}`:   d.Writer,
		`sonde_dropped_packets_total{place="unlisted"}`: 0,
	} {
		if got := after[series] - before[series]; got != float64(want) {
			t.Errorf("%s grew by %v, want %d", series, got, want)
		}
	}
}

func byNode(pods []corev1.Pod) map[string]int {
	n := map[string]int{}
	for i := range pods {
		n[pods[i].Spec.NodeName]++
	}
	return n
}

// freezeDisks makes the disks of the Pods' nodes hang until thawDisks, or until the test ends.
func freezeDisks(t *testing.T, pods []corev1.Pod) {
	t.Helper()
	for node := range byNode(pods) {
		t.Cleanup(func() {
			_ = tryOnNode(context.WithoutCancel(t.Context()), node, "fsfreeze", "--unfreeze", kubeletRoot)
		})
		cluster.OnNode(t, node, "fsfreeze", "--freeze", kubeletRoot)
	}
}

func thawDisks(t *testing.T, pods []corev1.Pod) {
	t.Helper()
	for node := range byNode(pods) {
		cluster.OnNode(t, node, "fsfreeze", "--unfreeze", kubeletRoot)
	}
}

func signalProbes(t *testing.T, pods []corev1.Pod, signal string) {
	t.Helper()
	for i := range pods {
		cluster.SignalProbe(t, &pods[i], signal)
	}
}
