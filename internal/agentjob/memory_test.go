package agentjob_test

import (
	"testing"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/wire/ringmemory"
)

// TestMemoryHasRoomForTheRings checks that the limit of a probe that may use BPF programs has room for their largest rings.
func TestMemoryHasRoomForTheRings(t *testing.T) {
	const mi = 1 << 20
	for engine, rings := range map[sondev1.CaptureEngine]func(int64) int64{
		"": same, sondev1.EngineAFPacket: same, sondev1.EngineAuto: ringmemory.MaxBytes, sondev1.EngineBPF: ringmemory.MaxBytes,
	} {
		for _, ringBytes := range []int64{mi, 32 * mi, 1024 * mi} {
			o, pc := options, capture()
			o.RingBytes, pc.Spec.Engine = ringBytes, engine
			probe := agentjob.Job(o, pc, agentjob.Plan{Name: "j", Pod: targetPod()}).Spec.Template.Spec.Containers[0]
			if got, want := probe.Resources.Limits.Memory().Value(), 128*mi+rings(ringBytes); got != want {
				t.Errorf("engine %q, ring of %d MiB: limit of %d MiB, want %d", engine, ringBytes/mi, got/mi, want/mi)
			}
			if got := probe.Resources.Requests.Memory().Value(); got != 64*mi {
				t.Errorf("engine %q, ring of %d MiB: request of %d MiB, want 64", engine, ringBytes/mi, got/mi)
			}
		}
	}
}

func same(n int64) int64 { return n }
