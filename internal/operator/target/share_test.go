package target_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// largeTrace has as long fields as a user can have the operator write: 200 Pods with long names, of which each second has
// another one of the containers.
func largeTrace(phase sondev1.Phase) *sondev1.Trace {
	trace := &sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{
			Name: strings.Repeat("t", 63), Namespace: strings.Repeat("s", 63), UID: "0123456789abcdef0123456789abcdef0123",
			Annotations: map[string]string{sondev1.AnnotationRequester: strings.Repeat("r", 1000), sondev1.AnnotationStamp: strings.Repeat("s", 64)},
		},
		Spec:   sondev1.TraceSpec{TargetDeployment: strings.Repeat("d", 253), Command: strings.Repeat("c", 255)},
		Status: sondev1.CaptureStatus{Phase: phase, JobID: "ab12", ObservedGeneration: 3, Target: strings.Repeat("t", 320)},
	}
	for c := range 16 {
		trace.Spec.Containers = append(trace.Spec.Containers, fmt.Sprintf("%0253d", c))
	}
	for k := range 200 {
		e := sondev1.PodResult{
			UID: fmt.Sprintf("%036d", k), Name: fmt.Sprintf("%0253d", k), Node: strings.Repeat("n", 253), Job: fmt.Sprintf("%063d", k),
			Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonContainerNotFound, Message: strings.Repeat("m", 512),
			AvailableUntil: new(metav1.Unix(int64(k%7), 0)), Files: []sondev1.ResultFile{{Name: "f"}},
		}
		for c := k % 2; c < 16; c++ {
			e.ContainersNotFound = append(e.ContainersNotFound, fmt.Sprintf("%063d", c))
		}
		trace.Status.Pods = append(trace.Status.Pods, e)
	}
	trace.Status.PodsOmitted, trace.Status.Totals = 3, sondev1.Totals{Pods: 203, Failed: 203}
	trace.Status.CompletionTime = new(metav1.Unix(5, 0))
	return trace
}

// TestEndedCapturesTakeLittleMemory checks the heap that the captures of a namespace take at the default ceilings, as the cache
// decodes and strips them: 20 that run, 80 that wait, and 400 that have ended.
func TestEndedCapturesTakeLittleMemory(t *testing.T) {
	const share = 4 // of them are measured
	heap := func(n int, trace *sondev1.Trace) uint64 {
		raw, err := json.Marshal(trace)
		if err != nil {
			t.Fatal(err)
		}
		kept := make([]any, 0, n/share)
		before := liveHeap()
		for range n / share {
			trace := &sondev1.Trace{}
			if err := json.Unmarshal(raw, trace); err != nil {
				t.Fatal(err)
			}
			o, err := target.Strip(trace)
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, o)
		}
		grown := liveHeap() - before
		runtime.KeepAlive(kept)
		runtime.KeepAlive(raw)
		return share * grown
	}
	running := largeTrace(sondev1.PhaseCapturing)
	for i := range running.Status.Pods {
		e := &running.Status.Pods[i]
		e.Message = fmt.Sprintf("%0512d", i)
		for f := range 16 {
			e.Files = append(e.Files[:f], sondev1.ResultFile{Name: fmt.Sprintf("%032d", f)})
		}
	}
	runs, waits, ended := heap(20, running), heap(80, largeTrace(sondev1.PhasePending)), heap(400, largeTrace(sondev1.PhaseFailed))
	t.Logf("%d KiB for 20 that run, %d KiB for 80 that wait, %d KiB for 400 that have ended", runs>>10, waits>>10, ended>>10)
	if sum := runs + waits + ended; sum > 25<<20 {
		t.Errorf("%d MiB for a namespace, want at most 25", sum>>20)
	}
}

// TestStripKeepsTheStatus checks that sharing texts changes nothing in a status, and what is kept of a capture that has ended.
func TestStripKeepsTheStatus(t *testing.T) {
	until := new(metav1.NewTime(time.Unix(6, 0)))
	ended := sondev1.CaptureStatus{
		Phase: sondev1.PhaseIncomplete, JobID: "ab12", ObservedGeneration: 3, PodsOmitted: 3,
		Totals: sondev1.Totals{Pods: 203}, CompletionTime: new(metav1.Unix(5, 0)),
		Pods: []sondev1.PodResult{{UID: fmt.Sprintf("%036d", 6), Phase: sondev1.PhaseFailed, AvailableUntil: until}},
	}
	for phase, want := range map[sondev1.Phase]sondev1.CaptureStatus{
		sondev1.PhaseCapturing:  largeTrace(sondev1.PhaseCapturing).Status,
		sondev1.PhaseIncomplete: ended,
	} {
		got := largeTrace(phase)
		for range 2 { // an informer may strip an object again
			if _, err := target.Strip(got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Status); diff != "" {
				t.Errorf("%s: status (-want +got):\n%s", phase, diff)
			}
		}
		if diff := cmp.Diff(largeTrace(phase).Spec, got.Spec); diff != "" {
			t.Errorf("%s: spec (-want +got):\n%s", phase, diff)
		}
	}
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // frees what sync.Pools still held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
