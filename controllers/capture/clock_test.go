package capture

import (
	"testing"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// TestWrongNodeClock checks that a node whose clock is wrong by an hour, or is set during a capture, keeps results for just
// the retention.
func TestWrongNodeClock(t *testing.T) {
	t.Parallel()
	const lasted, retained = 31 * time.Minute, 10 * time.Minute
	for name, tc := range map[string]struct{ before, after time.Duration }{
		"ahead":        {before: time.Hour, after: time.Hour},
		"behind":       {before: -time.Hour, after: -time.Hour},
		"set forwards": {after: time.Hour},
		"set back":     {after: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) {
				pc.Spec.Duration, pc.Spec.RetainFor = "30m", "10m"
			}), deployment("web-1")...)
			w.nodesAhead = tc.before
			w.settle()
			w.agents(w.attach)
			w.settle()
			started := w.nodeNow()
			w.clock.Step(lasted)
			w.settle()
			w.nodesAhead = tc.after
			a := done(sondev1.ReasonDuration)
			a.Started, a.Ended = started.Time, started.Add(lasted)
			w.wantKept(a, lasted, retained)
		})
	}
}

// wantKept ends the probes, and fails unless their results are kept for just the retention.
func (w *world) wantKept(a account.Account, lasted, retained time.Duration) {
	w.t.Helper()
	w.agents(w.end(a))
	res := w.settle()
	w.check("ended", sondev1.PhaseCompleted, "False Ended", "True Duration")
	status := w.capture().Status
	until := status.Pods[0].AvailableUntil
	if until == nil || !until.Time.Equal(dawn.Add(lasted+retained)) || !status.CompletionTime.Time.Equal(dawn.Add(lasted)) {
		w.t.Errorf("ended at %v, available until %v; want the file for %v from %v", status.CompletionTime, until, retained, dawn.Add(lasted))
	}
	if res.RequeueAfter != retained {
		w.t.Errorf("next pass after %v, want %v", res.RequeueAfter, retained)
	}
	w.clock.Step(retained - time.Second)
	w.settle()
	if len(w.jobNames()) != 1 || len(w.capture().Status.Pods[0].Files) != 1 {
		w.t.Errorf("a second before the retention ends: Jobs %v, entry %+v", w.jobNames(), w.capture().Status.Pods[0])
	}
	w.clock.Step(time.Second)
	w.settle()
	if left := w.left(); len(left) > 0 {
		w.t.Errorf("left when the file's time is over: %v", left)
	}
}
