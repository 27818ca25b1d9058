package capture

import (
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// TestPassDelay checks that the first event causes a pass at once, and that later events share the next pass.
func TestPassDelay(t *testing.T) {
	t.Parallel()
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	for name, tc := range map[string]struct {
		pods int
		want time.Duration // between two passes
	}{
		"a few Pods":     {pods: freePods, want: 0},
		"some Pods":      {pods: 50, want: 500 * time.Millisecond},
		"very many Pods": {pods: 5000, want: maxPassDelay},
		"unknown":        {want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := clocktesting.NewFakeClock(dawn)
			p := newThrottle(c)
			p.writeDelay(key, tc.pods)
			if got := p.passDelay(key); got != 0 {
				t.Errorf("the first event waits for %s", got)
			}
			p.passStarted(key)
			for range 3 {
				if got := p.passDelay(key); got != tc.want {
					t.Errorf("the next event waits for %s, want %s", got, tc.want)
				}
			}
			c.Step(tc.want)
			p.passStarted(key)
			c.Step(tc.want)
			if got := p.passDelay(key); got != 0 {
				t.Errorf("an event after a quiet time waits for %s", got)
			}
			p.forget(key)
			if len(p.known) > 0 {
				t.Errorf("state of a deleted capture is kept: %v", p.known)
			}
		})
	}
}

// TestThrottleOfAStandby checks that a replica that only watches keeps a bounded number of captures.
func TestThrottleOfAStandby(t *testing.T) {
	p := newThrottle(clocktesting.NewFakeClock(dawn))
	for i := range 3 * maxThrottled / 2 {
		p.passDelay(types.NamespacedName{Namespace: "shop", Name: strconv.Itoa(i)})
	}
	if len(p.known) > maxThrottled {
		t.Errorf("%d captures are known, want at most %d", len(p.known), maxThrottled)
	}
}

// TestWriteDelay checks that counts of a large capture are delayed, urgent changes are not, and none is lost.
func TestWriteDelay(t *testing.T) {
	t.Parallel()
	const pods = 3 * freePods
	names := make([]string, pods)
	for i := range names {
		names[i] = "web-" + string(rune('a'+i/26)) + string(rune('a'+i%26))
	}
	w := newWorld(t, newCapture(), deployment(names...)...)
	w.r.throttle = newThrottle(w.clock)
	w.settle()
	phase := func(want sondev1.Phase, attached, completed int) {
		t.Helper()
		got := w.capture().Status
		if got.Phase != want || count(got.Pods, sondev1.PhaseCapturing) != attached || count(got.Pods, sondev1.PhaseCompleted) != completed {
			t.Fatalf("status is %s with %d attached and %d completed, want %s, %d and %d", got.Phase,
				count(got.Pods, sondev1.PhaseCapturing), count(got.Pods, sondev1.PhaseCompleted), want, attached, completed)
		}
	}
	w.some(names[:1], w.attach)
	w.pass()
	phase(sondev1.PhasePending, 1, 0) // the first
	w.some(names[1:20], w.attach)
	res := w.pass()
	phase(sondev1.PhasePending, 1, 0) // delayed
	if res.RequeueAfter <= 0 || res.RequeueAfter > pods*writeDelayPerPod {
		t.Errorf("the delayed write follows after %s, want at most %s", res.RequeueAfter, pods*writeDelayPerPod)
	}
	w.clock.Step(res.RequeueAfter)
	w.pass()
	phase(sondev1.PhasePending, 20, 0)
	w.some(names[20:], w.attach)
	w.pass()
	phase(sondev1.PhaseCapturing, pods, 0) // all are attached: urgent
	w.clock.Step(31 * time.Second)
	w.pass()
	w.some(names[:20], w.end(done(sondev1.ReasonDuration)))
	w.pass()
	w.pass()
	w.some(names[20:], w.end(done(sondev1.ReasonDuration)))
	w.pass()
	phase(sondev1.PhaseCompleted, 0, pods)
}

// some changes only the agents of these Pods.
func (w *world) some(names []string, change func(*corev1.Pod)) {
	w.t.Helper()
	w.agents(func(agent *corev1.Pod) {
		if slices.Contains(names, agent.Annotations[sondev1.AnnotationTargetPod]) {
			change(agent)
		}
	})
}
