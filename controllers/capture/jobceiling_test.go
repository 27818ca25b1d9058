package capture

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// TestJobsOfEndedPods checks that a capture whose Pods come and go gets no more Jobs than a namespace may have. Then a Pod waits, says what
// to do, and makes the capture Incomplete if it waits until the end.
func TestJobsOfEndedPods(t *testing.T) {
	t.Parallel()
	const most = 3 // another capture has the rest
	long := newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Duration, pc.Spec.RetainFor = "1h", "10s" })
	rest := other("a", time.Minute, begun, func(pc *sondev1.PacketCapture) { pc.Status.Totals.Pods = jobsFactor - most })
	w := newWorld(t, long, append(deployment(), rest)...)
	w.r.Ceilings = ceiling.Limits{PodsPerCapture: 1}
	for i := range most + 1 {
		pod := webPod(fmt.Sprintf("web-%d", i), w.now)
		w.add(pod)
		w.settle()
		w.agents(w.attach)
		if i < most {
			w.remove(pod)
			w.agents(w.end(done(sondev1.ReasonTargetGone)))
			w.settle()
			w.clock.Step(2 * time.Minute) // longer than its result is kept
		}
	}
	res := w.settle()
	if n := len(w.jobs()); n != most || w.entries()[0] != "web-3 Pending CeilingPods" || res.RequeueAfter > queueDelay {
		t.Fatalf("%d Jobs, entries %v, next pass after %s", n, w.entries(), res.RequeueAfter)
	}
	message := w.capture().Status.Pods[0].Message
	for _, want := range []string{fmt.Sprintf("%d Pods may have one", jobsFactor), "kubectl sonde stop", "kubectl sonde delete", "cluster admin", "--max-pods-per-capture"} {
		if !strings.Contains(message, want) {
			t.Errorf("message %q does not say %q", message, want)
		}
	}
	w.clock.Step(time.Hour)
	w.settle()
	if s := w.capture().Status; s.Phase != sondev1.PhaseIncomplete || w.entries()[0] != "web-3 Failed CeilingPods" || s.Totals.Pods != most {
		t.Errorf("phase %s, entries %v, totals %+v", s.Phase, w.entries(), s.Totals)
	}
}

// TestJobsOfOtherCaptures checks that the Jobs of a namespace's captures count together, of both kinds, and no longer than they may exist.
func TestJobsOfOtherCaptures(t *testing.T) {
	t.Parallel()
	const pods = jobsFactor // of the other capture have Jobs
	at := func(after time.Duration) *metav1.Time { return new(metav1.NewTime(dawn.Add(after))) }
	ended := func(s *sondev1.CaptureStatus, until ...time.Duration) {
		s.Phase = sondev1.PhaseCompleted
		for _, after := range until {
			s.Pods = append(s.Pods, sondev1.PodResult{UID: "u", Phase: sondev1.PhaseCompleted, AvailableUntil: at(after)})
		}
	}
	for name, tc := range map[string]struct {
		limit   int
		change  func(*sondev1.PacketCapture)
		trace   bool
		waiting bool
	}{
		"no ceiling":      {limit: 0},
		"room":            {limit: 2},
		"a running one":   {limit: 1, waiting: true},
		"a running Trace": {limit: 1, trace: true, waiting: true},
		"Pods that wait": {limit: 1, change: func(pc *sondev1.PacketCapture) {
			pc.Status.Totals.Pods = pods - 1
			pc.Status.Pods = slices.Repeat([]sondev1.PodResult{{Phase: sondev1.PhasePending, Reason: sondev1.ReasonCeilingPods}}, pods)
		}},
		"another namespace's": {limit: 1, change: func(pc *sondev1.PacketCapture) { pc.Namespace = "private" }},
		"one that is deleted": {limit: 1, change: func(pc *sondev1.PacketCapture) {
			pc.DeletionTimestamp, pc.Finalizers = at(0), []string{"example.com/keep"}
		}},
		"one with files":          {limit: 1, change: func(pc *sondev1.PacketCapture) { ended(&pc.Status, -time.Second, time.Second, 0) }, waiting: true},
		"one whose files expired": {limit: 1, change: func(pc *sondev1.PacketCapture) { ended(&pc.Status, -time.Second) }},
		"one without files":       {limit: 1, change: func(pc *sondev1.PacketCapture) { ended(&pc.Status) }},
		"one with files of unlisted Pods": {limit: 1, change: func(pc *sondev1.PacketCapture) {
			ended(&pc.Status, -time.Second)
			pc.Status.PodsOmitted, pc.Status.CompletionTime = 1, at(-time.Hour+time.Second)
		}, waiting: true},
		"one whose unlisted files expired": {limit: 1, change: func(pc *sondev1.PacketCapture) {
			ended(&pc.Status, -time.Second)
			pc.Status.PodsOmitted, pc.Status.CompletionTime = 1, at(-time.Hour)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			one := other("a", time.Minute, begun, func(pc *sondev1.PacketCapture) { pc.Status.Totals.Pods = pods })
			if tc.change != nil {
				tc.change(one)
			}
			cached := sondev1.Capture(one)
			if tc.trace {
				cached = &sondev1.Trace{ObjectMeta: one.ObjectMeta, Spec: sondev1.TraceSpec{TargetDeployment: "else"}, Status: one.Status}
			}
			finalizers := one.Finalizers // the fake client deletes an object without any
			if _, err := target.Strip(cached); err != nil {
				t.Fatal(err)
			}
			cached.SetFinalizers(finalizers)
			w := newWorld(t, newCapture(), append(deployment("web-1"), cached)...)
			w.r.Ceilings = ceiling.Limits{PodsPerCapture: tc.limit}
			w.settle()
			want := "web-1 Pending Pending"
			if tc.waiting {
				want = "web-1 Pending CeilingPods"
			}
			if got := w.entries(); len(got) != 1 || got[0] != want || (len(w.jobs()) == 0) != tc.waiting {
				t.Errorf("entries %v, Jobs %v, want %s", got, w.jobNames(), want)
			}
		})
	}
}

// TestJobsAreFreed checks that a Pod that waits for a Job of its namespace gets it in a later pass, when another capture's Jobs are gone.
func TestJobsAreFreed(t *testing.T) {
	t.Parallel()
	one := other("a", time.Minute, begun, func(pc *sondev1.PacketCapture) { pc.UID, pc.Status.Totals.Pods = types.UID("a"), jobsFactor })
	w := newWorld(t, newCapture(), append(deployment("web-1"), one)...)
	w.r.Ceilings = ceiling.Limits{PodsPerCapture: 1}
	w.settle()
	w.clock.Step(2 * targetTimeout) // the wait does not count as waiting for a target
	if res := w.settle(); len(w.jobs()) > 0 || w.condition(sondev1.ConditionCapturing) != "False CeilingPods" || res.RequeueAfter != queueDelay {
		t.Fatalf("Jobs %v, Capturing %s, next pass after %s", w.jobNames(), w.condition(sondev1.ConditionCapturing), res.RequeueAfter)
	}
	w.remove(one)
	w.clock.Step(queueDelay)
	w.settle()
	if len(w.jobs()) != 1 {
		t.Errorf("Jobs %v, entries %v", w.jobNames(), w.entries())
	}
}
