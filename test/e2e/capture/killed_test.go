//go:build e2e

package capture

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// A killed probe leaves a valid file with all packets up to its last flush, and the status says Incomplete.
func TestKilledProbeIsIncomplete(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 2, "sink")
	pods := cluster.ReadyPods(t, target, 2)
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp"})
	for i := range pods {
		cluster.Send(t, sender, cluster.UDPAddr(pods[i].Status.PodIP), uint32(i+1), 1000) //nolint:gosec // two Pods
	}
	cluster.AwaitProgress(t, pc, pods[0].Name, 1000)
	cluster.KillProbe(t, &pods[0])
	cluster.Eventually(t, 30*time.Second, "the killed probe's Pod final", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
			return err
		}
		if e := cluster.Entry(t, pc, pods[0].Name); e.Phase != sondev1.PhaseIncomplete || e.Reason != sondev1.ReasonKilled {
			return fmt.Errorf("%+v", e)
		}
		return nil
	})
	cluster.Stop(t, pc)
	if pc.Status.Phase != sondev1.PhaseIncomplete {
		t.Errorf("phase %s, want Incomplete", pc.Status.Phase)
	}
	if e := cluster.Entry(t, pc, pods[1].Name); e.Phase != sondev1.PhaseCompleted {
		t.Errorf("the other Pod: %+v, want Completed", e)
	}
	got := cluster.Download(t, pc)
	for i := range pods {
		if different, n := got[pods[i].Name].Count(uint32(i + 1)); different != 1000 || n != 1000 { //nolint:gosec // two Pods
			t.Errorf("%s: got %d numbers in %d packets, want the 1000 that were flushed", pods[i].Name, different, n)
		}
	}
}
