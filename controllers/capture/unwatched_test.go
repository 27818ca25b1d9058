package capture

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/podwatch"
)

func TestUnwatched(t *testing.T) {
	t.Parallel()
	sec := func(s float64) time.Time { return dawn.Add(time.Duration(s * float64(time.Second))) }
	span := func(from, to float64) sondev1.Timespan {
		return sondev1.Timespan{From: metav1.NewTime(sec(from)), To: metav1.NewTime(sec(to))}
	}
	gap := func(from, to float64) podwatch.Gap { return podwatch.Gap{From: sec(from), To: sec(to)} }
	var many []podwatch.Gap
	for i := range 20 {
		many = append(many, gap(float64(10*i), float64(10*i+5)))
	}
	for name, tc := range map[string]struct {
		before []sondev1.Timespan
		gaps   []podwatch.Gap
		ended  bool
		want   []string
	}{
		"none":                          {},
		"before the start":              {gaps: []podwatch.Gap{gap(-60, -1)}},
		"over the start":                {gaps: []podwatch.Gap{gap(-60, 5)}, want: []string{"0 to 5"}},
		"no beginning":                  {gaps: []podwatch.Gap{{To: sec(5)}}, want: []string{"0 to 5"}},
		"whole seconds":                 {gaps: []podwatch.Gap{gap(5.7, 7.2)}, want: []string{"5 to 8"}},
		"over the end":                  {gaps: []podwatch.Gap{gap(20, 60)}, ended: true, want: []string{"20 to 30"}},
		"after the end":                 {gaps: []podwatch.Gap{gap(40, 60)}, ended: true},
		"as before":                     {before: []sondev1.Timespan{span(5, 8)}, gaps: []podwatch.Gap{gap(5.7, 7.2)}, want: []string{"5 to 8"}},
		"of an earlier manager":         {before: []sondev1.Timespan{span(5, 8)}, want: []string{"5 to 8"}},
		"two that overlap":              {before: []sondev1.Timespan{span(5, 8)}, gaps: []podwatch.Gap{gap(7, 12), gap(20, 21)}, want: []string{"5 to 12", "20 to 21"}},
		"more than the status may have": {gaps: many, want: []string{"0 to 5", "10 to 15", "20 to 25", "30 to 35", "40 to 45", "50 to 55", "60 to 65", "70 to 195"}},
	} {
		t.Run(name, func(t *testing.T) {
			status := &sondev1.CaptureStatus{StartTime: new(metav1.NewTime(dawn)), Unwatched: tc.before}
			if tc.ended {
				status.EndTime = new(metav1.NewTime(sec(30)))
			}
			for range 2 { // the second pass changes nothing
				status.Unwatched = unwatched(status, tc.gaps)
				var got []string
				for _, s := range status.Unwatched {
					got = append(got, fmt.Sprintf("%v to %v", s.From.Sub(dawn).Seconds(), s.To.Sub(dawn).Seconds()))
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestResultOfAnUnwatchedCapture checks that a gap of the watch stands in the status and in the result's message, and that it alone
// does not make the result incomplete.
func TestResultOfAnUnwatchedCapture(t *testing.T) {
	t.Parallel()
	for name, listed := range map[string]bool{"a gap": true, "control: no gap": false} {
		t.Run(name, func(t *testing.T) {
			w := lateCapture(t)
			w.clock.Step(time.Second)
			w.r.PodWatch.Observed()
			w.clock.Step(time.Second)
			if listed {
				w.r.PodWatch.Listed()
			}
			w.settle()
			w.clock.Step(10 * time.Second)
			w.agents(w.end(done(sondev1.ReasonDuration)))
			w.settle()
			w.check("over", sondev1.PhaseCompleted, "False Ended", "True Duration")
			note := fmt.Sprintf("none unaccounted for; the operator did not watch from %s to %s, and a Pod that came and went then may not be listed",
				dawn.Format(time.RFC3339), dawn.Add(12*time.Second).Format(time.RFC3339))
			sent := w.sent()
			if strings.Contains(sent, note) != listed || (len(w.capture().Status.Unwatched) == 1) != listed {
				t.Errorf("unwatched %v, Events:\n%s", w.capture().Status.Unwatched, sent)
			}
		})
	}
}
