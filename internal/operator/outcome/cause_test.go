package outcome_test

import (
	"testing"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// TestClaimedCause checks that the API server must confirm why a probe ended, if that makes its result complete: by spec.stop or because
// the Pod is gone, not later than the event.
func TestClaimedCause(t *testing.T) {
	const after = time.Hour // long after the end of the probe
	end := dawn.Add(time.Minute)
	is := func(at time.Time) outcome.Event { return outcome.Event{Happened: true, At: at} }
	unknown := is(time.Time{})
	for name, tc := range map[string]struct {
		reason              string
		asked               bool
		stop, gone, leaving outcome.Event
		at                  time.Duration // after the end of the probe; after if zero
		wantCause           outcome.Cause
		wantPhase           sondev1.Phase
		wantReason          string
	}{
		"its duration is over": {reason: account.ReasonDuration, wantCause: outcome.CauseOwn, wantPhase: sondev1.PhaseCompleted, wantReason: sondev1.ReasonDuration},
		"stopped":              {reason: account.ReasonStopped, asked: true, stop: unknown, wantCause: outcome.CauseStop, wantPhase: sondev1.PhaseCompleted, wantReason: sondev1.ReasonStopped},
		"stopped before it ended": {
			reason: account.ReasonStopped, asked: true, stop: is(end.Add(-time.Minute)),
			wantCause: outcome.CauseStop, wantPhase: sondev1.PhaseCompleted, wantReason: sondev1.ReasonStopped,
		},
		"stopped as it ended, and the clocks differ": {
			reason: account.ReasonStopped, asked: true, stop: is(end.Add(4 * time.Second)),
			wantCause: outcome.CauseStop, wantPhase: sondev1.PhaseCompleted, wantReason: sondev1.ReasonStopped,
		},
		"stopped after it ended": {
			reason: account.ReasonStopped, asked: true, stop: is(end.Add(6 * time.Second)),
			wantCause: outcome.CauseStop, wantPhase: sondev1.PhaseIncomplete, wantReason: sondev1.ReasonStopNotRequested,
		},
		"not stopped": {
			reason: account.ReasonStopped, asked: true, gone: unknown, leaving: unknown,
			wantCause: outcome.CauseStop, wantPhase: sondev1.PhaseIncomplete, wantReason: sondev1.ReasonStopNotRequested,
		},
		"asked, and the Pod is gone": {
			reason: account.ReasonTargetGone, asked: true, gone: unknown, leaving: unknown,
			wantCause: outcome.CausePod, wantPhase: sondev1.PhaseCompleted, wantReason: sondev1.ReasonTargetGone,
		},
		"asked, and the Pod ended later": {
			reason: account.ReasonTargetGone, asked: true, gone: is(end.Add(6 * time.Second)), leaving: is(end.Add(6 * time.Second)),
			wantCause: outcome.CausePod, wantPhase: sondev1.PhaseIncomplete, wantReason: sondev1.ReasonStopNotRequested,
		},
		"asked, and the Pod is only being deleted": {
			reason: account.ReasonTargetGone, asked: true, leaving: unknown, at: time.Second,
			wantCause: outcome.CausePod, wantPhase: sondev1.PhaseIncomplete, wantReason: sondev1.ReasonStopNotRequested,
		},
		"no process, and the Pod is gone": {
			reason: account.ReasonTargetGone, gone: unknown, leaving: unknown, at: time.Second,
			wantCause: outcome.CausePod, wantPhase: sondev1.PhaseCompleted, wantReason: sondev1.ReasonTargetGone,
		},
		"no process, and the Pod is being deleted": {
			reason: account.ReasonTargetGone, leaving: is(end.Add(-3 * time.Second)), at: time.Second,
			wantCause: outcome.CausePod, wantPhase: sondev1.PhaseCompleted, wantReason: sondev1.ReasonTargetGone,
		},
		"no process, and the Pod was deleted much later": {
			reason: account.ReasonTargetGone, leaving: is(end.Add(time.Minute)), at: 2 * time.Minute,
			wantCause: outcome.CausePod, wantPhase: sondev1.PhaseIncomplete, wantReason: sondev1.ReasonTargetNotGone,
		},
		"no process, and the API server may not know yet": {
			reason: account.ReasonTargetGone, at: 29 * time.Second,
			wantCause: outcome.CausePod, wantPhase: sondev1.PhaseCapturing, wantReason: sondev1.ReasonCapturing,
		},
		"no process, and the Pod stays": {
			reason: account.ReasonTargetGone, at: 30 * time.Second,
			wantCause: outcome.CausePod, wantPhase: sondev1.PhaseIncomplete, wantReason: sondev1.ReasonTargetNotGone,
		},
		"no process, and the Pod stays, on a node whose clock is ahead": {
			reason: account.ReasonTargetGone, at: -time.Hour,
			wantCause: outcome.CausePod, wantPhase: sondev1.PhaseIncomplete, wantReason: sondev1.ReasonTargetNotGone,
		},
		"no process, the Pod stays, and the capture is stopped": {
			reason: account.ReasonTargetGone, stop: unknown,
			wantCause: outcome.CausePod, wantPhase: sondev1.PhaseIncomplete, wantReason: sondev1.ReasonTargetNotGone,
		},
	} {
		t.Run(name, func(t *testing.T) {
			acc := complete()
			acc.Reason, acc.Asked, acc.Ended = tc.reason, tc.asked, end
			pod := agent(ended(acc, 0))
			probe(pod).State.Terminated.FinishedAt.Time = end
			o := outcome.Observed{Before: capturing(), Job: job(), Agent: pod, Stop: tc.stop, Gone: tc.gone, Leaving: tc.leaving, RetainFor: time.Hour}
			if got := outcome.ClaimedCause(o); got != tc.wantCause {
				t.Errorf("cause %d, want %d", got, tc.wantCause)
			}
			at := tc.at
			if at == 0 {
				at = after
			}
			v := outcome.Judge(o, end.Add(at))
			if v.Entry.Phase != tc.wantPhase || v.Entry.Reason != tc.wantReason {
				t.Errorf("%s %s (%s), want %s %s", v.Entry.Phase, v.Entry.Reason, v.Entry.Message, tc.wantPhase, tc.wantReason)
			}
			if want := end.Add(30 * time.Second); !tc.wantPhase.Final() && !v.Again.Equal(want) {
				t.Errorf("judged again at %v, want %v", v.Again, want)
			}
			if tc.wantPhase == sondev1.PhaseIncomplete && v.Entry.Message == "" || tc.wantPhase.Final() && len(v.Entry.Files) != 1 {
				t.Errorf("message %q, files %v", v.Entry.Message, v.Entry.Files)
			}
		})
	}
}
