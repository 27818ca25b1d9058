package capture

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/podwatch"
)

// unwatched adds the gaps of the watch to those that the status has: earlier managers had others. Times are whole seconds, as the
// API server stores them.
func unwatched(status *sondev1.CaptureStatus, gaps []podwatch.Gap) []sondev1.Timespan {
	if status.StartTime == nil {
		return status.Unwatched
	}
	spans := slices.Clone(status.Unwatched)
	for _, g := range gaps {
		from, to := later(g.From.Truncate(time.Second), status.StartTime.Time), wholeSecond(g.To)
		if status.EndTime != nil {
			to = earlier(to, status.EndTime.Time)
		}
		if from.Before(to) {
			spans = append(spans, sondev1.Timespan{From: metav1.NewTime(from), To: metav1.NewTime(to)})
		}
	}
	slices.SortFunc(spans, func(a, b sondev1.Timespan) int { return a.From.Compare(b.From.Time) })
	var merged []sondev1.Timespan
	for _, s := range spans {
		last := len(merged) - 1
		if last < 0 || last < sondev1.MaxUnwatched-1 && merged[last].To.Before(&s.From) {
			merged = append(merged, s)
			continue
		}
		merged[last].To = metav1.NewTime(later(merged[last].To.Time, s.To.Time))
	}
	return merged
}

// unwatchedNote says in a message when Pods were not watched.
func unwatchedNote(capture sondev1.Capture) string {
	spans := capture.CaptureStatus().Unwatched
	if len(spans) == 0 {
		return ""
	}
	text := func(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }
	more := ""
	if n := len(spans) - 1; n > 0 {
		more = fmt.Sprintf(" and at %d more times", n)
	}
	return fmt.Sprintf("; the operator did not watch from %s to %s%s, and a Pod that came and went then may not be listed", text(spans[0].From), text(spans[0].To), more)
}
