package capture

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// TestGatingTurnsTrueLast checks that Gating is True only once the API servers have had time to load the webhook.
func TestGatingTurnsTrueLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newTrace(), deployment("web-1")...)
	steps := []struct {
		what   string
		before func()
		want   string
	}{
		{"no configuration", func() { w.gateless = []string{"shop"} }, "False GatePreparing"},
		{"still none", func() { w.clock.Step(time.Minute) }, "False GatePreparing"},
		{"it is written", func() { w.gateless = nil }, "Unknown GateSettling"},
		{"a moment later", func() { w.clock.Step(gateSettle - time.Second) }, "Unknown GateSettling"},
		{"loaded", func() { w.clock.Step(time.Second) }, "True Gating"},
		{"later", func() { w.clock.Step(time.Minute) }, "True Gating"},
		{"deleted by someone", func() { w.gateless = []string{"shop"} }, "False GatePreparing"},
		{"and repaired", func() { w.gateless = nil }, "Unknown GateSettling"},
	}
	for _, s := range steps {
		s.before()
		if res := w.settle(); w.gating() == "Unknown GateSettling" && res.RequeueAfter > gateSettle {
			t.Errorf("%s: next pass only after %v", s.what, res.RequeueAfter)
		}
		if got := w.gating(); got != s.want {
			t.Errorf("%s: Gating is %q, want %q", s.what, got, s.want)
		}
	}
}

// TestProtectedNamespaceGatesNothing checks that Gating does not promise what the webhook never does.
func TestProtectedNamespaceGatesNothing(t *testing.T) {
	t.Parallel()
	f := gatingCondition(newTrace(), observation{now: dawn, protected: true, gateConfigured: true}, plan{})
	if f.status != metav1.ConditionFalse || f.reason != sondev1.ReasonNamespaceProtected {
		t.Errorf("Gating is %+v", f)
	}
}

// TestGatingTurnsFalseFirst checks that a Pod that was created while Gating was True is traced, also if it gets its node after
// the end, and that the trace waits for it. Its probes attach late.
func TestGatingTurnsFalseFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newTrace(func(t *sondev1.Trace) { t.Spec.Duration = "5" }), deployment("web-1")...)
	w.openGate()
	w.clock.Step(10 * time.Second)
	w.attachNew()
	w.settle()
	if got := w.gating(); got != "True Gating" || w.trace().Status.Phase != sondev1.PhaseCapturing {
		t.Fatalf("Gating is %q, phase %s", got, w.trace().Status.Phase)
	}
	held := func(name string) *corev1.Pod {
		return webPod(name, gated(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), func(p *corev1.Pod) {
			p.CreationTimestamp = metav1.NewTime(w.clock.Now())
		})
	}
	w.clock.Step(2 * time.Second)
	w.add(held("web-2"))
	w.settle()
	w.clock.Step(3 * time.Second)
	last := held("web-3") // created before the pass that notices the end
	w.agents(w.end(done(sondev1.ReasonDuration)))
	w.settle()
	if got := w.gating(); got != "False Ending" || w.trace().Status.Phase != sondev1.PhaseEnding {
		t.Fatalf("at the end: Gating is %q, phase %s", got, w.trace().Status.Phase)
	}
	w.clock.Step(2 * time.Second)
	w.add(last, held("web-4")) // web-3 has a node; web-4 was created since, with a forged annotation
	w.settle()
	if diff := cmp.Diff([]string{"web-1-qwer 5s", "web-2-qwer 3s", "web-3-qwer 1s"}, w.durations()); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
	w.clock.Step(gateTail)
	w.attachNew()
	w.settle()
	w.agents(w.end(done(sondev1.ReasonDuration)))
	w.settle()
	if s := w.trace().Status; s.Phase != sondev1.PhaseCompleted || len(s.Pods) != 3 {
		t.Errorf("phase %s, entries %v", s.Phase, entries(s))
	}
}

// TestGatingIsFalseBeforeTheEnd checks that no write that ends a trace finds Gating True.
func TestGatingIsFalseBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*world, *sondev1.Trace){
		"stopped":    func(_ *world, tr *sondev1.Trace) { tr.Spec.Stop = true },
		"right lost": func(w *world, _ *sondev1.Trace) { w.deny["shop"] = "no"; w.clock.Step(DefaultAccessReviewInterval) },
		"no Pods":    func(w *world, _ *sondev1.Trace) { w.clock.Step(targetTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newTrace(), deployment()...)
			w.openGate()
			tr := w.trace()
			end(w, tr)
			w.update(tr)
			seen := []string{w.gating()}
			for range 10 {
				w.pass()
				if got := w.gating(); got != seen[len(seen)-1] {
					seen = append(seen, got)
				}
				w.clock.Step(time.Second)
			}
			if len(seen) != 3 || seen[0] != "True Gating" || seen[1] == "False Ended" || seen[2] != "False Ended" {
				t.Errorf("Gating was %v, want it False before the end", seen)
			}
		})
	}
}
