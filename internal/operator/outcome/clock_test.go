package outcome_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
)

// TestNodesClock checks that a wrong clock of the node changes neither the verdict nor the retention.
func TestNodesClock(t *testing.T) {
	const lasted, retain = 40 * time.Minute, 10 * time.Minute
	end := dawn.Add(lasted) // by the manager's clock
	cases := map[string]struct {
		finishedAt time.Time     // by the node's clock
		passAfter  time.Duration // from the end to the pass
		want       time.Duration // how long the file is available after the end
	}{
		"the same":                        {finishedAt: end, passAfter: time.Second, want: retain},
		"the same, late pass":             {finishedAt: end, passAfter: 5 * time.Minute, want: retain},
		"two seconds ahead":               {finishedAt: end.Add(2 * time.Second), passAfter: time.Second, want: retain + 2*time.Second},
		"an hour ahead":                   {finishedAt: end.Add(time.Hour), passAfter: time.Second, want: retain + time.Second},
		"an hour behind":                  {finishedAt: end.Add(-time.Hour), passAfter: time.Second, want: retain + time.Second},
		"set back by minutes, in between": {finishedAt: end.Add(-20 * time.Minute), passAfter: time.Second, want: retain + time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := complete()
			a.Started = tc.finishedAt.Add(-lasted)
			a.Ended = a.Started.Add(lasted)
			pod := agent(ended(a, 0))
			pod.CreationTimestamp = metav1.NewTime(dawn)
			probe(pod).State.Terminated.FinishedAt = metav1.NewTime(tc.finishedAt)
			s := outcome.Observed{
				Before: entry(sondev1.PhaseCapturing, sondev1.ReasonCapturing, ""), Job: job(), Agent: pod, Duration: lasted, RetainFor: retain,
			}
			v := outcome.Judge(s, end.Add(tc.passAfter))
			if v.Entry.Phase != sondev1.PhaseCompleted || v.Entry.AvailableUntil == nil {
				t.Fatalf("verdict %+v", v.Entry)
			}
			if got := v.Entry.AvailableUntil.Sub(end); got != tc.want {
				t.Errorf("available for %v, want %v", got, tc.want)
			}
			s.Before = v.Entry
			if v := outcome.Judge(s, end.Add(tc.want-time.Minute)); len(v.Entry.Files) != 1 || v.DeleteJob {
				t.Errorf("a minute before the retention ends: %+v", v)
			}
		})
	}
}

// TestNodesClockWhenOverdue checks that a wrong clock of the node does not change when its probe is overdue.
func TestNodesClockWhenOverdue(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"right": 0, "ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			pod := agent(running(true))
			pod.CreationTimestamp = metav1.NewTime(dawn)
			probe(pod).State.Running.StartedAt = metav1.NewTime(dawn.Add(ahead))
			s := outcome.Observed{Before: entry(sondev1.PhaseCapturing, sondev1.ReasonCapturing, ""), Job: job(), Agent: pod, Duration: 10 * time.Minute}
			for at, want := range map[time.Duration]bool{time.Second: false, 10 * time.Minute: false, 13 * time.Minute: true} {
				if got := outcome.NeedsNode(s, dawn.Add(at)); got != want {
					t.Errorf("after %v NeedsNode is %t, want %t", at, got, want)
				}
			}
		})
	}
}
