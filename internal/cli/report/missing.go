package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/live"
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

// messageNotes are the messages of Pods that are Completed, for example that interfaces came and went.
func messageNotes(pods []v1alpha1.PodResult) []string {
	return grouped(pods, func(p *v1alpha1.PodResult) string {
		if p.Phase != v1alpha1.PhaseCompleted {
			return ""
		}
		return p.Message
	}, func(message, who string) string { return who + ": " + message })
}

// limits of a spec, by the reason of a Pod that reached them.
var limits = map[string]string{
	v1alpha1.ReasonByteLimit: "maxBytes", v1alpha1.ReasonPacketLimit: "maxPackets", v1alpha1.ReasonEventLimit: "maxEvents",
}

// Limited reports whether a Pod's recording ended at a limit of the spec.
func (r Report) Limited() bool {
	return slices.ContainsFunc(r.Pods, func(p Pod) bool { return limits[p.Reason] != "" })
}

// limitNotes says which Pods reached a limit of the spec.
func limitNotes(pods []v1alpha1.PodResult, unit live.Unit) []string {
	return grouped(pods, func(p *v1alpha1.PodResult) string { return limits[p.Reason] }, func(limit, who string) string {
		return fmt.Sprintf("%s reached %s, so later %s are in no file", who, limit, unit.Count())
	})
}

// grouped makes one note for each text. Notes are in the order of their first Pods; each names its first Pod and counts the others.
func grouped(pods []v1alpha1.PodResult, textOf func(*v1alpha1.PodResult) string, note func(text, who string) string) []string {
	var order []string
	names := map[string][]string{}
	for i := range pods {
		text := textOf(&pods[i])
		if text == "" {
			continue
		}
		if names[text] == nil {
			order = append(order, text)
		}
		names[text] = append(names[text], pods[i].Name)
	}
	var notes []string
	for _, text := range order {
		notes = append(notes, note(text, andMore(names[text])))
	}
	return notes
}

// andMore names the first and counts the others.
func andMore(names []string) string {
	if more := len(names) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", names[0], more)
	}
	return names[0]
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
		notes = append(notes, fmt.Sprintf("container %q does not exist in %s, so the result has no events of it", c, andMore(names[c])))
	}
	return notes
}
