package capture

import (
	"cmp"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// report writes the status from the observation, the plan and the results of its actions.
func report(capture sondev1.Capture, observed observation, planned plan, done actions, err error) {
	status := capture.CaptureStatus()
	status.ObservedGeneration = capture.GetGeneration()
	status.Target = targetText(capture)
	final := status.Phase.Final()
	if planned.valid {
		entries := withJobs(planned.entries, done)
		if !final {
			status.StartTime = startTime(status.StartTime, observed, planned, done)
			status.EndTime = endTime(status, planned)
			status.Unwatched = unwatched(status, observed.gaps)
			status.Totals = totals(entries)
			reportPhase(capture, observed, planned, entries)
		}
		status.Pods, status.PodsOmitted = bounded(entries, status.PodsOmitted, final)
	}
	if !final {
		reportConditions(capture, observed, planned, err)
	}
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = capture.GetGeneration()
	}
}

// withJobs adds to the entries the names of the created Jobs, or why creating them failed.
func withJobs(entries []sondev1.PodResult, done actions) []sondev1.PodResult {
	for i := range entries {
		e := &entries[i]
		if name, ok := done.jobs[types.UID(e.UID)]; ok {
			e.Job, e.Reason, e.Message = name, sondev1.ReasonPending, ""
		}
		if missing, ok := done.missing[types.UID(e.UID)]; ok {
			missing.addTo(e)
		}
		err, ok := done.errs[types.UID(e.UID)]
		switch {
		case !ok:
		case errors.Is(err, errNameConflict):
			e.Phase, e.Reason, e.Message = sondev1.PhaseFailed, sondev1.ReasonNameConflict, err.Error()
		case isRefusal(err):
			e.Reason, e.Message = sondev1.ReasonJobRefused, text.OneLine(err.Error(), 512)
		default:
			e.Reason, e.Message = sondev1.ReasonReconcileError, text.OneLine(err.Error(), 512)
		}
	}
	return entries
}

func startTime(before *metav1.Time, observed observation, planned plan, done actions) *metav1.Time {
	if before != nil || planned.start.IsZero() || observed.jobs+len(done.jobs) == 0 {
		return before
	}
	t := metav1.NewTime(planned.start).Rfc3339Copy() // the precision that the API server stores
	return &t
}

// endTime is published together with startTime or later: without a Job there is nothing to end.
func endTime(status *sondev1.CaptureStatus, planned plan) *metav1.Time {
	if status.StartTime == nil || planned.end.IsZero() {
		return status.EndTime
	}
	return new(metav1.NewTime(planned.end))
}

// reportPhase writes the phase. A Pod that joins does not set a Capturing capture back to Pending.
func reportPhase(capture sondev1.Capture, observed observation, planned plan, entries []sondev1.PodResult) {
	status := capture.CaptureStatus()
	attached, pending := count(entries, sondev1.PhaseCapturing), count(entries, sondev1.PhasePending)
	switch {
	case planned.over:
		status.Phase = finalPhase(entries, !planned.admitted)
		status.CompletionTime = completion(entries, observed, planned)
	case status.EndTime != nil && !observed.now.Before(status.EndTime.Time):
		status.Phase = sondev1.PhaseEnding
	case attached > 0 && pending == 0:
		status.Phase = sondev1.PhaseCapturing
	case status.Phase == "":
		status.Phase = sondev1.PhasePending
	}
}

// finalPhase combines the entries' phases. A capture that lost its admission is not complete, even if all of its Pods are.
func finalPhase(entries []sondev1.PodResult, revoked bool) sondev1.Phase {
	switch {
	case count(entries, sondev1.PhaseFailed) == len(entries):
		return sondev1.PhaseFailed
	case revoked || count(entries, sondev1.PhaseCompleted) < len(entries):
		return sondev1.PhaseIncomplete
	default:
		return sondev1.PhaseCompleted
	}
}

func completion(entries []sondev1.PodResult, observed observation, planned plan) *metav1.Time {
	ended := planned.ended
	for i := range entries {
		if until := entries[i].AvailableUntil; until != nil && until.Add(-observed.retain).After(ended) {
			ended = until.Add(-observed.retain)
		}
	}
	if ended.IsZero() {
		ended = observed.now
	}
	t := metav1.NewTime(ended).Rfc3339Copy()
	return &t
}

func totals(entries []sondev1.PodResult) sondev1.Totals {
	t := sondev1.Totals{
		Completed:  int32(count(entries, sondev1.PhaseCompleted)),
		Incomplete: int32(count(entries, sondev1.PhaseIncomplete)),
		Failed:     int32(count(entries, sondev1.PhaseFailed)),
	}
	for i := range entries {
		e := &entries[i]
		if e.Job != "" {
			t.Pods++
		}
		t.Packets += e.Packets
		t.Bytes += e.Bytes
		t.Dropped += e.Dropped.Total()
		t.Truncated += e.Truncated
		t.Overwritten += e.Overwritten
		t.Events += e.Events
		t.Lost += e.LostEvents()
	}
	return t
}

// minDeparted is how many departed Pods are listed even if the others need all places. Any number of Pods can come and go, and a user
// can make up such Pods, but only the others have files.
const minDeparted = 10

// bounded lists as many entries as the API allows: failed, incomplete and untraced ones first, then queued ones, then by name. A final
// status keeps its count of omitted Pods, because only listed Pods are judged again.
func bounded(entries []sondev1.PodResult, omitted int32, final bool) ([]sondev1.PodResult, int32) {
	slices.SortFunc(entries, func(a, b sondev1.PodResult) int {
		return cmp.Or(listRank(a)-listRank(b), queueRank(a)-queueRank(b), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	if final {
		return entries, omitted
	}
	entries = departedLast(entries)
	listed := entries[:min(len(entries), sondev1.MaxPodEntries)]
	return listed, int32(len(entries) - len(listed))
}

// departedLast moves to the end the departed Pods that would take the places of others.
func departedLast(entries []sondev1.PodResult) []sondev1.PodResult {
	departed := 0
	for i := range entries {
		if isDeparted(entries[i]) {
			departed++
		}
	}
	room := max(minDeparted, sondev1.MaxPodEntries-(len(entries)-departed))
	if departed <= room {
		return entries
	}
	kept, last := make([]sondev1.PodResult, 0, len(entries)), make([]sondev1.PodResult, 0, departed-room)
	for i := range entries {
		if isDeparted(entries[i]) {
			room--
		}
		if isDeparted(entries[i]) && room < 0 {
			last = append(last, entries[i])
		} else {
			kept = append(kept, entries[i])
		}
	}
	return append(kept, last...)
}

// isDeparted reports whether a Pod was gone before a Job was created for it.
func isDeparted(e sondev1.PodResult) bool {
	return e.Phase == sondev1.PhaseFailed && e.Reason == sondev1.ReasonTargetGone && e.Job == ""
}

func sortRank(e sondev1.PodResult) int {
	if e.Phase == sondev1.PhaseFailed || e.Phase == sondev1.PhaseIncomplete {
		return 0
	}
	return 1
}

// listRank is sortRank, except that a Pod that has started untraced comes first even before it is judged: only its entry says that it has.
func listRank(e sondev1.PodResult) int {
	if e.Gate != nil && slices.Contains(startedUntraced, e.Gate.Outcome) {
		return 0
	}
	return sortRank(e)
}

// queueRank puts queued entries first: their Pods have no Job that could be found again.
func queueRank(e sondev1.PodResult) int {
	if isQueued(e) {
		return 0
	}
	return 1
}

func count(entries []sondev1.PodResult, phase sondev1.Phase) int {
	n := 0
	for i := range entries {
		if entries[i].Phase == phase {
			n++
		}
	}
	return n
}

// targetText has at most the 320 bytes of its field.
func targetText(capture sondev1.Capture) string {
	return naming.Cut(capture.Common().Target.String(), 320)
}
