package cluster

import (
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Engine is what hack/install.sh was told to have the packets taken by of captures that do not name an engine; empty
// leaves that to the version.
var Engine = sondev1.CaptureEngine(os.Getenv("SONDE_ENGINE"))

// tcxSince is the kernel that first has tcx.
var tcxSince = [2]int{6, 6}

// TakenBy is how packets are taken that an engine is forced to take, as the status has it; empty where it is free.
func TakenBy(t *testing.T, engine sondev1.CaptureEngine) string {
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

// kernelHas tells whether the nodes' kernel is of a version or later.
func kernelHas(t *testing.T, since [2]int) bool {
	t.Helper()
	var nodes corev1.NodeList
	if err := Admin.List(t.Context(), &nodes); err != nil || len(nodes.Items) == 0 {
		t.Fatalf("list nodes: %d, %v", len(nodes.Items), err)
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

// WantEngine fails unless the packets of each of a capture's Pods were taken by the engine that it asks for, and by the
// one that the tests were told of. A Pod has none before its capture ends, and if no probe was attached. What is no PacketCapture
// has no choice.
func WantEngine(t *testing.T, capture sondev1.Capture) {
	t.Helper()
	pc, ok := capture.(*sondev1.PacketCapture)
	if !ok {
		return
	}
	want := TakenBy(t, pc.Spec.Engine)
	if told := TakenBy(t, Engine); told != "" && want != told {
		t.Errorf("%s has engine %q, the tests were told %q", pc.Name, pc.Spec.Engine, Engine)
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
