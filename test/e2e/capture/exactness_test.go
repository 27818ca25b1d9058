//go:build e2e

package capture

import (
	"fmt"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Numbered packets reach two Pods on one node and one on another. They come from a Pod, from the node itself and over
// loopback. Each Pod's file holds each packet sent to that Pod exactly once, and no packet of another Pod.
func TestExactness(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 3, "sink")
	neighbour := cluster.Deployment(t, ns, "neighbour", 2, "sink")
	pods, neighbours := cluster.ReadyPods(t, target, 3), cluster.ReadyPods(t, neighbour, 2)
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	hostSpec := cluster.PodSpec("idle")
	hostSpec.HostNetwork = true
	hostSender := cluster.Pod(t, ns, "host-sender", hostSpec)
	mustShareANode(t, pods)

	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: fmt.Sprintf("udp port %d", cluster.UDPPort)})
	want := map[string]map[uint32]uint64{}
	for i := range pods {
		p := &pods[i]
		base := uint32(100 * (i + 1)) //nolint:gosec // three Pods
		want[p.Name] = map[uint32]uint64{
			base + 1: cluster.Send(t, sender, cluster.UDPAddr(p.Status.PodIP), base+1, 3000).Count,
			base + 2: cluster.Send(t, hostSender, cluster.UDPAddr(p.Status.PodIP), base+2, 1000).Count,
			base + 3: cluster.Send(t, p, cluster.UDPAddr("127.0.0.1"), base+3, 1000).Count,
			base + 4: cluster.Send(t, p, cluster.UDPAddr(neighbours[0].Status.PodIP), base+4, 500, "-size", "1400").Count,
		}
	}
	for i := range neighbours {
		cluster.Send(t, sender, cluster.UDPAddr(neighbours[i].Status.PodIP), uint32(900+i), 500) //nolint:gosec // two Pods
	}
	cluster.Stop(t, pc)

	if pc.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("phase %s, want Completed: %+v", pc.Status.Phase, pc.Status)
	}
	got := cluster.Download(t, pc)
	var total int64
	for name, runs := range want {
		packets := int64(0)
		for run, count := range runs {
			different, n := got[name].Count(run)
			if uint64(different) != count || uint64(n) != count { //nolint:gosec // small counts
				t.Errorf("%s, run %d: got %d different numbers in %d packets, want %d", name, run, different, n, count)
			}
			packets += int64(count) //nolint:gosec // small counts
		}
		for run := range got[name].Numbers {
			if _, ok := runs[run]; !ok {
				t.Errorf("%s holds packets of run %d, which were sent to other Pods", name, run)
			}
		}
		e := cluster.Entry(t, pc, name)
		if e.Dropped.Total() != 0 || e.Packets != packets || int64(got[name].Packets) != packets || e.Reason != sondev1.ReasonStopped {
			t.Errorf("%s: status %+v, %d packets in the file, want %d and none dropped", name, e, got[name].Packets, packets)
		}
		total += packets
	}
	if pc.Status.Totals.Packets != total || pc.Status.Totals.Dropped != 0 || pc.Status.Totals.Pods != 3 {
		t.Errorf("totals %+v, want %d packets of 3 Pods", pc.Status.Totals, total)
	}
}

// mustShareANode fails unless two of the Pods are on one node and the third is on another.
func mustShareANode(t *testing.T, pods []corev1.Pod) {
	t.Helper()
	perNode := map[string]int{}
	for i := range pods {
		perNode[pods[i].Spec.NodeName]++
	}
	if len(perNode) < 2 || len(perNode) == len(pods) {
		t.Fatalf("Pods per node %v: the test needs two on one and one on another (make cluster-up NODES=2)", perNode)
	}
}
