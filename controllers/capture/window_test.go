package capture

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// lateCapture runs a capture of 5 s on one Pod whose probe is attached after 10 s.
func lateCapture(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Duration = "5" }), deployment("web-1")...)
	w.settle()
	w.clock.Step(10 * time.Second)
	if end := w.capture().Status.EndTime; end != nil {
		t.Fatalf("end %v before the probe is attached", end)
	}
	w.agents(w.attach)
	w.settle()
	return w
}

// attachNew attaches the probes that are not attached yet.
func (w *world) attachNew() {
	w.t.Helper()
	w.agents(func(p *corev1.Pod) {
		if p.Status.Phase == corev1.PodPending {
			w.attach(p)
		}
	})
}

// TestEndOfLateCapture checks that a Pod that joins while the phase is Capturing is captured, and that the end is published.
func TestEndOfLateCapture(t *testing.T) {
	t.Parallel()
	w := lateCapture(t)
	end := dawn.Add(15 * time.Second)
	if s := w.capture().Status; s.Phase != sondev1.PhaseCapturing || s.EndTime == nil || !s.EndTime.Time.Equal(end) {
		t.Fatalf("phase %s, end %v, want %v", s.Phase, s.EndTime, end)
	}
	if sent := w.sent(); !strings.Contains(sent, "until "+end.Format(time.RFC3339)) {
		t.Errorf("Events: %s", sent)
	}
	w.clock.Step(2 * time.Second)
	w.add(webPod("web-2", w.now))
	w.settle()
	if diff := cmp.Diff([]string{"web-1-qwer 5s", "web-2-qwer 3s"}, w.durations()); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
	w.clock.Step(3 * time.Second)
	w.agents(func(p *corev1.Pod) {
		if p.Name == "web-1-qwer-x" {
			w.end(done(sondev1.ReasonDuration))(p)
		}
	})
	w.settle()
	w.check("at the end", sondev1.PhaseEnding, "False Ending", "Unknown Ending")
	w.add(webPod("web-3", w.now)) // too late
	w.settle()
	w.attachNew() // the probe of web-2 is late, too
	w.settle()
	w.check("a late probe", sondev1.PhaseEnding, "False Ending", "Unknown Ending")
	w.clock.Step(3 * time.Second)
	w.agents(w.end(done(sondev1.ReasonDuration)))
	w.settle()
	if diff := cmp.Diff([]string{"web-1 Completed Duration", "web-2 Completed Duration"}, entries(w.capture().Status)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	w.check("over", sondev1.PhaseCompleted, "False Ended", "True Duration")
}

// TestPodWithoutAJob checks that a Pod that joined before the end and got no Job stands in the status, and that the result is
// not complete.
func TestPodWithoutAJob(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		end    func(*world) // the capture, a second after the Pod joined
		reason string
	}{
		"the manager was away": {func(w *world) { w.clock.Step(10 * time.Second) }, "NotStarted"},
		"stopped": {func(w *world) {
			pc := w.capture()
			pc.Spec.Stop = true
			w.update(pc)
		}, "Stopped"},
		"the cache does not have it": {func(w *world) {
			w.hidden = "web-2"
			w.clock.Step(10 * time.Second)
		}, "NotStarted"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := lateCapture(t)
			w.clock.Step(time.Second)
			w.add(webPod("web-2", w.now))
			w.clock.Step(time.Second)
			tc.end(w)
			w.agents(w.end(done(sondev1.ReasonDuration)))
			w.settle()
			if diff := cmp.Diff([]string{"web-2 Failed " + tc.reason, "web-1 Completed Duration"}, entries(w.capture().Status)); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			w.check("over", sondev1.PhaseIncomplete, "False Ended", "False "+tc.reason)
		})
	}
}

// TestEndWaitsForThePodsOfTheStart checks that Pods that join do not put off the end, and that a Pod that is never captured does so
// for a bounded time.
func TestEndWaitsForThePodsOfTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Duration = "5" }), deployment("web-1", "web-2")...)
	w.settle()
	w.agents(func(p *corev1.Pod) {
		if p.Name == "web-1-qwer-x" {
			w.attach(p)
		}
	})
	w.settle()
	w.clock.Step(time.Minute)
	w.agents(func(p *corev1.Pod) {
		if p.Name == "web-1-qwer-x" {
			w.end(done(sondev1.ReasonDuration))(p)
		}
	})
	w.add(webPod("web-3", w.now))
	if res := w.settle(); res.RequeueAfter > 4*time.Minute {
		t.Errorf("next pass only after %v", res.RequeueAfter)
	}
	if end := w.capture().Status.EndTime; end != nil {
		t.Fatalf("end %v while web-2 awaits its probe", end)
	}
	w.attachNew()
	w.settle()
	if end, want := w.capture().Status.EndTime, dawn.Add(65*time.Second); end == nil || !end.Time.Equal(want) {
		t.Errorf("end %v, want %v", end, want)
	}
}

// TestStatusOfAnOlderVersion checks that a running capture without endTime ends when the older version said.
func TestStatusOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	w := lateCapture(t)
	pc := w.capture()
	pc.Status.EndTime = nil
	w.update(pc)
	w.settle()
	if end := w.capture().Status.EndTime; end == nil || !end.Time.Equal(dawn.Add(5*time.Second)) {
		t.Errorf("end %v, want startTime plus duration", end)
	}
}

// TestTerminatingPod checks that a Pod that is being deleted is captured for the time that it has left, and that one whose time
// has passed is not.
func TestTerminatingPod(t *testing.T) {
	t.Parallel()
	leaving := func(left time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = new(metav1.NewTime(dawn.Add(left))), []string{"example.test/kept"}
		}
	}
	w := newWorld(t, newCapture(), append(deployment("web-1"), webPod("web-2", leaving(20*time.Second)), webPod("web-3", leaving(-time.Minute)))...)
	w.settle()
	if diff := cmp.Diff([]string{"web-1-qwer", "web-2-qwer"}, w.jobNames()); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
	for _, c := range w.capture().Status.Conditions {
		if c.Type == sondev1.ConditionTargetFound && !strings.Contains(c.Message, "has 3 Pods; 1 of them should have ended already") {
			t.Errorf("TargetFound: %s", c.Message)
		}
	}
	w.agents(w.attach)
	w.settle()
	w.clock.Step(20 * time.Second)
	w.agents(func(p *corev1.Pod) {
		if p.Name == "web-2-qwer-x" {
			w.end(done(sondev1.ReasonTargetGone))(p)
		}
	})
	w.settle()
	w.clock.Step(11 * time.Second)
	w.agents(w.end(done(sondev1.ReasonDuration)))
	w.settle()
	if diff := cmp.Diff([]string{"web-1 Completed Duration", "web-2 Completed TargetGone"}, entries(w.capture().Status)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}
