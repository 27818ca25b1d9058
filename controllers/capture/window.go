package capture

import (
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
)

// The window of a capture is the time in which Pods join it (docs/adr/0015-one-clock.md). It ends duration after a probe is
// attached to each Pod that existed at the start, so it outlasts all of their captures. status.endTime publishes the end when
// it is known. Until then every new Pod joins.

// publishedEnd is the end that the status has, or now if the capture must end before it; zero while it is not known. A status of
// a version without endTime promised startTime plus duration as soon as its phase was Capturing.
func publishedEnd(capture sondev1.Capture, observed observation) time.Time {
	status, start := capture.CaptureStatus(), started(capture, observed)
	var end time.Time
	switch {
	case status.EndTime != nil:
		end = status.EndTime.Time
	case start.IsZero():
		return time.Time{}
	case status.Phase == sondev1.PhaseCapturing:
		end = start.Add(observed.duration)
	}
	if capture.Common().Stop || observed.admission.refused() {
		return earlier(end, observed.now.Truncate(time.Second))
	}
	return end
}

// newEnd returns the end once no Pod of the start awaits its probe; zero before. It is a whole second, as the API server stores
// it, so that creation times of Pods compare with it exactly.
func (planned *plan) newEnd(observed observation) time.Time {
	if planned.start.IsZero() || planned.awaitsFirst(observed) {
		return time.Time{}
	}
	if count(planned.entries, sondev1.PhaseCapturing) > 0 {
		return wholeSecond(observed.now.Add(observed.duration))
	}
	// All have ended already, or failed.
	return wholeSecond(later(observed.now, planned.start.Add(observed.duration)))
}

// endEarly ends the window of a capture that is over before, for example because its target is gone.
func (planned *plan) endEarly(now time.Time) {
	if planned.over {
		planned.end = earlier(planned.end, now.Truncate(time.Second))
	}
}

func wholeSecond(t time.Time) time.Time { return t.Add(time.Second - 1).Truncate(time.Second) }

// awaitsFirst reports whether a Pod that existed at the start awaits its probe. A Pod that waits for a ceiling, or leaves, does
// not count.
func (planned *plan) awaitsFirst(observed observation) bool {
	if !observed.now.Before(planned.start.Add(outcome.StartTimeout)) {
		return false
	}
	pending := map[string]bool{}
	for i := range planned.entries {
		e := &planned.entries[i]
		pending[e.UID] = e.Phase == sondev1.PhasePending && !isQueued(*e)
	}
	for _, p := range observed.pods {
		if pending[string(p.uid)] && p.pod != nil && p.pod.GetDeletionTimestamp() == nil && !p.pod.GetCreationTimestamp().After(planned.start) {
			return true
		}
	}
	return false
}

// hasEntry reports whether a Pod that does not join has an entry.
func (planned *plan) hasEntry(capture sondev1.Capture, observed observation, p *podState) bool {
	return p.known || p.hadJob() || planned.misses(capture, observed, p)
}

// misses reports whether a Pod joined before the end and got no Job in time, or was gone before. Its entry makes the result
// incomplete.
func (planned *plan) misses(capture sondev1.Capture, observed observation, p *podState) bool {
	switch {
	case observed.compiled.unusable.reason != "":
		return false
	case p.departed != nil:
		return planned.wants(capture, p.departed.created) && (planned.end.IsZero() || planned.joinedBeforeEnd(capture, p.departed.created))
	case p.pod == nil, p.overdue(observed.now), planned.end.IsZero(), observed.now.Before(planned.end):
		return false
	default:
		created := p.pod.GetCreationTimestamp().Time
		return planned.wants(capture, created) && planned.joinedBeforeEnd(capture, created)
	}
}

// joinedBeforeEnd reports whether a Pod was created before the end. The pass that notices a stop counts all Pods: they exist
// already.
func (planned *plan) joinedBeforeEnd(capture sondev1.Capture, created time.Time) bool {
	published := capture.CaptureStatus().EndTime
	return published == nil || planned.end.Before(published.Time) || created.Before(planned.end)
}

// overdue reports whether the grace period of a Pod that is being deleted has passed. Until then its containers may run.
func (p *podState) overdue(now time.Time) bool {
	deleted := p.pod.GetDeletionTimestamp()
	return deleted != nil && !now.Before(deleted.Time)
}

// overdue counts the Pods of the target whose grace period has passed.
func (observed observation) overdue() int {
	n := 0
	for _, p := range observed.pods {
		if p.pod != nil && p.overdue(observed.now) {
			n++
		}
	}
	return n
}

// podDuration is the duration for a Pod whose Job is created at this time. A Pod that joins gets what is left until the end.
func (observed observation) podDuration(end, created time.Time) time.Duration {
	if end.IsZero() {
		return observed.duration
	}
	return min(observed.duration, max(end.Sub(created), time.Second))
}
