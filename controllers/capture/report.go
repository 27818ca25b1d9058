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

// report writes the status from what was seen, what was planned, and how acting on it went.
func report(capture sondev1.Capture, seen observed, todo plan, done acted, err error) {
	status := capture.CaptureStatus()
	status.ObservedGeneration = capture.GetGeneration()
	status.Target = targetText(capture)
	final := status.Phase.Final()
	if todo.observed {
		entries := withJobs(todo.entries, done)
		if !final {
			status.StartTime = startTime(status.StartTime, seen, todo, done)
			status.Totals = totals(entries)
			reportPhase(capture, seen, todo, entries)
		}
		status.Pods, status.PodsOmitted = bounded(entries, status.PodsOmitted, final)
	}
	if !final {
		reportConditions(capture, seen, todo, err)
	}
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = capture.GetGeneration()
	}
}

// withJobs adds to the entries the names of the Jobs that were made, or why they were not.
func withJobs(entries []sondev1.PodResult, done acted) []sondev1.PodResult {
	for i := range entries {
		e := &entries[i]
		if name, ok := done.jobs[types.UID(e.UID)]; ok {
			e.Job, e.Reason, e.Message = name, sondev1.ReasonPending, ""
		}
		if lacks, ok := done.lacking[types.UID(e.UID)]; ok {
			lacks.into(e)
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

func startTime(before *metav1.Time, seen observed, todo plan, done acted) *metav1.Time {
	if before != nil || todo.start.IsZero() || seen.jobs+len(done.jobs) == 0 {
		return before
	}
	t := metav1.NewTime(todo.start).Rfc3339Copy() // as it will be read back
	return &t
}

// reportPhase writes the phase; once Capturing, a capture does not go back to Pending because a Pod joins.
func reportPhase(capture sondev1.Capture, seen observed, todo plan, entries []sondev1.PodResult) {
	status := capture.CaptureStatus()
	attached, pending := count(entries, sondev1.PhaseCapturing), count(entries, sondev1.PhasePending)
	switch {
	case todo.over:
		status.Phase = finalPhase(entries, !todo.admitted)
		status.CompletionTime = completion(entries, seen, todo)
	case attached > 0 && pending == 0:
		status.Phase = sondev1.PhaseCapturing
	case status.Phase == "":
		status.Phase = sondev1.PhasePending
	}
}

// finalPhase sums up; a capture that was cut off is not whole, even if its parts are.
func finalPhase(entries []sondev1.PodResult, cutOff bool) sondev1.Phase {
	switch {
	case count(entries, sondev1.PhaseFailed) == len(entries):
		return sondev1.PhaseFailed
	case cutOff || count(entries, sondev1.PhaseCompleted) < len(entries):
		return sondev1.PhaseIncomplete
	default:
		return sondev1.PhaseCompleted
	}
}

func completion(entries []sondev1.PodResult, seen observed, todo plan) *metav1.Time {
	ended := todo.ended
	for i := range entries {
		if until := entries[i].AvailableUntil; until != nil && until.Add(-seen.retain).After(ended) {
			ended = until.Add(-seen.retain)
		}
	}
	if ended.IsZero() {
		ended = seen.now
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

// bounded keeps what the API allows: first what a reader must know, then by name. A final status
// keeps its count of Pods that are not listed: only the listed ones are looked at again.
func bounded(entries []sondev1.PodResult, omitted int32, final bool) ([]sondev1.PodResult, int32) {
	slices.SortFunc(entries, func(a, b sondev1.PodResult) int {
		return cmp.Or(trouble(a)-trouble(b), inQueue(a)-inQueue(b), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	if final {
		return entries, omitted
	}
	listed := entries[:min(len(entries), sondev1.MaxPodEntries)]
	return listed, int32(len(entries) - len(listed))
}

func trouble(e sondev1.PodResult) int {
	if e.Phase == sondev1.PhaseFailed || e.Phase == sondev1.PhaseIncomplete {
		return 0
	}
	return 1
}

// inQueue puts what waits for a ceiling before what does not: of that, nothing but its entry is there.
func inQueue(e sondev1.PodResult) int {
	if waits(e) {
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

// targetText fits its field, whatever the name.
func targetText(capture sondev1.Capture) string {
	ref := capture.Common().Target
	return naming.Cut(string(ref.Kind)+"/"+ref.Name, 320)
}
