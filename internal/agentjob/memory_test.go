package agentjob_test

import (
	"strconv"
	"testing"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/wire/handover"
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

// TestMemoryHasRoomForSockets checks that the limits of a carrier's two containers have room for sockets, which the Go heap leaves alone.
func TestMemoryHasRoomForSockets(t *testing.T) {
	const mi = 1 << 20
	job := agentjob.Carrier(options, agentjob.CarrierPlan{Name: "c", Pod: targetPod()})
	for i, heap := range []int64{96 * mi, 192 * mi} { // opener, carrier
		c := job.Spec.Template.Spec.Containers[i]
		if got := c.Resources.Limits.Memory().Value(); got != heap+handover.SocketMemory {
			t.Errorf("%s: limit of %d MiB, want %d", c.Name, got/mi, (heap+handover.SocketMemory)/mi)
		}
		if want := strconv.FormatInt(heap*3/4, 10); c.Env[0].Name != "GOMEMLIMIT" || c.Env[0].Value != want {
			t.Errorf("%s: %v, want GOMEMLIMIT=%s", c.Name, c.Env[0], want)
		}
		if got := c.Resources.Requests.Memory().Value(); got != 24*mi {
			t.Errorf("%s: request of %d MiB, want 24", c.Name, got/mi)
		}
	}
}
