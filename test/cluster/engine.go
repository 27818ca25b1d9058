package cluster

import (
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Engine is the default engine that hack/install.sh installed the operator with. It is empty if the operator chooses.
var Engine = sondev1.CaptureEngine(os.Getenv("SONDE_ENGINE"))

// tcxSince is the first kernel version that has tcx.
var tcxSince = [2]int{6, 6}

// Backend returns the backend that an engine has to use, as the status spells it; empty if the probe chooses.
func Backend(t *testing.T, engine sondev1.CaptureEngine) string {
	t.Helper()
	switch engine {
	case sondev1.EngineAFPacket:
		return "afpacket"
	case sondev1.EngineBPF:
		if kernelHas(t, tcxSince) {
			return "tcx"
		}
		return "clsact"
	default:
		return ""
	}
}

// kernelHas reports whether all nodes run a kernel of this version or later.
func kernelHas(t *testing.T, since [2]int) bool {
	t.Helper()
	var nodes corev1.NodeList
	if err := Admin.List(t.Context(), &nodes); err != nil || len(nodes.Items) == 0 {
		t.Fatalf("list nodes: got %d, error %v", len(nodes.Items), err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if n.Labels[Simulated] == "kwok" {
			continue
		}
		var major, minor int
		if _, err := fmt.Sscanf(n.Status.NodeInfo.KernelVersion, "%d.%d", &major, &minor); err != nil {
			t.Fatalf("kernel %q of node %s: %v", n.Status.NodeInfo.KernelVersion, n.Name, err)
		}
		if major < since[0] || major == since[0] && minor < since[1] {
			return false
		}
	}
	return true
}

// WantEngine fails the test unless the engine that the capture asks for took the packets of each Pod, and this is also
// the engine of the test run. A Pod has no engine before its capture ends, or if no probe was attached. Only
// PacketCaptures have engines.
func WantEngine(t *testing.T, capture sondev1.Capture) {
	t.Helper()
	pc, ok := capture.(*sondev1.PacketCapture)
	if !ok {
		return
	}
	want := Backend(t, pc.Spec.Engine)
	if installed := Backend(t, Engine); installed != "" && want != installed {
		t.Errorf("%s has engine %q, want the installed default %q", pc.Name, pc.Spec.Engine, Engine)
	}
	for i := range pc.Status.Pods {
		p := &pc.Status.Pods[i]
		if p.Engine == "" && p.Phase != sondev1.PhaseCompleted && len(p.Files) == 0 {
			continue
		}
		if p.Engine == "" || want != "" && (p.Engine != want || p.EngineMessage != "" && want != "clsact") {
			t.Errorf("%s: packets of %s were taken by %q (%s), want %q", pc.Name, p.Name, p.Engine, p.EngineMessage, want)
		}
	}
}
