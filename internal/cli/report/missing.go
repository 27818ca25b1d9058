package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// The plugin deletes a capture and its status when everything is saved. So the report has what otherwise only the status has.

// unwatchedNotes says when the operator did not watch Pods.
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

// containerNotes says which containers of the spec Pods do not have: one note for each container, with the first of its Pods.
func containerNotes(pods []v1alpha1.PodResult) []string {
	names := map[string][]string{}
	for i := range pods {
		if pods[i].Reason == v1alpha1.ReasonContainerNotFound { // its problem names them
			continue
		}
		for _, c := range pods[i].ContainersNotFound {
			names[c] = append(names[c], pods[i].Name)
		}
	}
	var notes []string
	for _, c := range slices.Sorted(maps.Keys(names)) {
		which := names[c][0] + " has"
		if more := len(names[c]) - 1; more > 0 {
			which = fmt.Sprintf("%s and %d more have", names[c][0], more)
		}
		notes = append(notes, fmt.Sprintf("%s no container %q, so the result has no events of it", which, c))
	}
	return notes
}
