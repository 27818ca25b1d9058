package capture

import (
	"fmt"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/wire/duration"
)

// A Job and its agent's Pod hold the account of a Pod until the capture is over, also when the Pod has ended, and each replica of the
// manager caches both. The Pods of a target can come and go without end, so their Jobs have a ceiling of their own.

// jobsFactor is how many times the Pods that one capture may capture at the same time may have Jobs at least, in all captures of a
// namespace. By default 20 captures may run there, and others have ended and keep their files. If more may run, all have that many.
const jobsFactor = 25

// mostJobs is how many Pods may have Jobs in the captures of one namespace together; zero is no ceiling.
func (m room) mostJobs() int {
	return max(jobsFactor, m.limits.CapturesPerNamespace) * m.limits.PodsPerCapture
}

// fullOfJobs reports whether the captures of the namespace may create no more Jobs.
func (m room) fullOfJobs() bool { return m.mostJobs() > 0 && m.jobs >= m.mostJobs() }

// waitsForJobs says what a Pod waits for in a room that is fullOfJobs, and what users can do.
func (m room) waitsForJobs() string {
	return fmt.Sprintf("waits for Jobs of its namespace's captures to be deleted: %d Pods may have one, and each keeps it until its capture has ended and retainFor is over; stop or delete captures (kubectl sonde stop, kubectl sonde delete), or ask for %s",
		m.mostJobs(), ceiling.Raise(ceiling.FlagPodsPerCapture))
}

// jobsOfOthers counts the Pods that have Jobs in the other captures of the namespace. Their statuses are some seconds old, and count a
// Pod also if its Job was deleted.
func jobsOfOthers(capture sondev1.Capture, captures []sondev1.Capture, now time.Time) int {
	jobs := 0
	for _, o := range captures {
		status := o.CaptureStatus()
		switch {
		case o.GetUID() == capture.GetUID(), o.GetNamespace() != capture.GetNamespace(), !o.GetDeletionTimestamp().IsZero():
		case status.Phase.Final() && !now.Before(keptUntil(o)):
		default:
			jobs += int(status.Totals.Pods)
		}
	}
	return jobs
}

// keptUntil is when a capture that has ended deletes its Jobs (planFinal): when the last of its files expires; zero if it has none.
func keptUntil(capture sondev1.Capture) (until time.Time) {
	status := capture.CaptureStatus()
	for i := range status.Pods {
		if t := status.Pods[i].AvailableUntil; t != nil {
			until = later(until, t.Time)
		}
	}
	if status.PodsOmitted == 0 {
		return until
	}
	retain, err := duration.Parse(capture.Common().RetainFor)
	if err != nil { // the schema refuses it
		return until
	}
	return later(until, unlistedUntil(status, retain))
}

// unlistedUntil is when the files of those Pods expire that the status of an ended capture does not list; zero if it lists all.
func unlistedUntil(status *sondev1.CaptureStatus, retain time.Duration) time.Time {
	if status.CompletionTime == nil || status.PodsOmitted == 0 {
		return time.Time{}
	}
	return status.CompletionTime.Add(retain)
}
