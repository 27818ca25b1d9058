package tc

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/ringmemory"
)

// On a node with any number of CPUs the rings fit into the memory limit of the probe's container.
func TestRingsFitTheirMemory(t *testing.T) {
	for _, ringBytes := range []int{1 << 20, 3 << 20, defaultRingBytes, 100 << 20, 128 << 20, 1 << 30} {
		most := ringmemory.MaxBytes(int64(ringBytes))
		for cpus := 1; cpus <= ringmemory.MaxCPUs; cpus++ {
			for _, snapLen := range []uint32{96, 65535, snapLen} {
				p, err := programsFor(cpus, ringBytes, snapLen)
				if err != nil {
					t.Fatal(err)
				}
				m := &ebpf.MapSpec{}
				ring.Shape(m, p.cpus, p.size, p.longest())
				if got := int64(m.MaxEntries) * int64(m.ValueSize); got > most {
					t.Fatalf("%d CPUs, %d bytes for their rings, %d of a packet: %d bytes, at most %d are there", cpus, ringBytes, snapLen, got, most)
				}
			}
		}
	}
}

func TestTooManyCPUs(t *testing.T) {
	if _, err := programsFor(ringmemory.MaxCPUs+1, defaultRingBytes, snapLen); err == nil || !strings.Contains(err.Error(), "513 CPUs") {
		t.Errorf("%v, want the number of CPUs", err)
	}
}
