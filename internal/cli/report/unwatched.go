package report

import (
	"strings"
	"time"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// unwatchedNotes says when the operator did not watch Pods. The result is Completed nevertheless, and the status that says so is deleted
// with the capture.
func unwatchedNotes(s *v1alpha1.CaptureStatus) []string {
	if len(s.Unwatched) == 0 {
		return nil
	}
	var times []string
	for i := range s.Unwatched {
		from, to := s.Unwatched[i].From.UTC(), s.Unwatched[i].To.UTC()
		times = append(times, "from "+from.Format(time.RFC3339)+" to "+to.Format(time.RFC3339))
	}
	return []string{"the operator did not watch Pods " + strings.Join(times, ", ") + "; a Pod that came and went then may be missing"}
}
