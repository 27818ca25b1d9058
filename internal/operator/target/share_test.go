package target_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// TestEndedTracesShareTexts: a Trace that ended with 16 made-up containers for each of 200 Pods takes less than half of the heap
// that it would take as it is decoded, and is the same Trace.
func TestEndedTracesShareTexts(t *testing.T) {
	const traces = 20
	ended := func() *sondev1.Trace {
		var trace sondev1.Trace
		for k := range 200 {
			e := sondev1.PodResult{
				UID: fmt.Sprintf("%036d", k), Name: fmt.Sprintf("web-%050d", k), Node: strings.Repeat("n", 20), Phase: sondev1.PhaseFailed,
				Reason: strings.Clone(sondev1.ReasonContainerNotFound), Message: strings.Repeat("m", 512),
			}
			for c := range 16 {
				e.ContainersNotFound = append(e.ContainersNotFound, fmt.Sprintf("%063d", c))
			}
			if k == 100 {
				e.Message, e.ContainersNotFound = "another", e.ContainersNotFound[:3]
			}
			trace.Status.Pods = append(trace.Status.Pods, e)
		}
		return &trace
	}
	heap := func(keep func(*sondev1.Trace)) uint64 {
		kept := make([]*sondev1.Trace, 0, traces)
		before := liveHeap()
		for range traces {
			trace := ended()
			keep(trace)
			kept = append(kept, trace)
		}
		grown := liveHeap() - before
		runtime.KeepAlive(kept)
		return grown / traces
	}
	strip := func(trace *sondev1.Trace) {
		if _, err := target.Strip(trace); err != nil {
			t.Fatal(err)
		}
	}
	decoded, stripped := heap(func(*sondev1.Trace) {}), heap(strip)
	t.Logf("%d KiB for each Trace, %d KiB as decoded", stripped>>10, decoded>>10)
	if stripped > decoded/2 {
		t.Errorf("%d KiB for each Trace, %d KiB as decoded", stripped>>10, decoded>>10)
	}
	got := ended()
	strip(got)
	if diff := cmp.Diff(ended().Status, got.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
