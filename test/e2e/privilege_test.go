//go:build e2e

package e2e

import (
	"testing"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// With no more than the capabilities that it needs a probe captures, and every packet is accounted for.
func TestPrivilegeCapabilitiesCaptures(t *testing.T) {
	managerFlag(t, "--probe-privilege=Capabilities")
	ns := namespace(t, nil)
	target := deployment(t, ns, "sink", 1, "sink")
	pods := readyPods(t, target, 1)
	sender := pod(t, ns, "sender", podSpec("idle"))
	pc := capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp"})
	send(t, sender, udpAddr(pods[0].Status.PodIP), 1, 1000)
	awaitProgress(t, pc, pods[0].Name, 1000)
	stop(t, pc)
	if pc.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("phase %s, pods %+v", pc.Status.Phase, pc.Status.Pods)
	}
	if different, n := download(t, pc)[pods[0].Name].Count(1); different != 1000 || n != 1000 {
		t.Errorf("%d numbers in %d packets, want 1000", different, n)
	}
}
