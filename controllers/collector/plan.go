package collector

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

// plan is what follows for a Collector.
type plan struct {
	state state
	// reason and message of the state, for the conditions.
	reason, message string
	// start a run. act does so if rights and anchor allow it, and changes the state otherwise.
	start bool
	// queued: a run has to wait for those of other Collectors.
	queued bool
	// after is when the next pass is due without an event; zero if never.
	after time.Duration
}

// state of a Collector.
type state int

const (
	// reconciling: a run runs, or will run by itself.
	reconciling state = iota
	// ready: nothing to do.
	ready
	// stalled: someone has to change something.
	stalled
	// held: someone has asked for no runs.
	held
)

// planFor decides what follows. It is pure.
func planFor(o *observation) plan {
	c := o.collector
	s := &c.Status
	if p, busy := o.busy(); busy {
		return p
	}
	switch {
	case o.refused != "":
		return plan{state: stalled, reason: sondev1.ReasonNotAdmitted, message: o.refused}
	case c.Spec.Suspend:
		return plan{state: held, reason: sondev1.ReasonSuspended, message: "spec.suspend is true: the release stays as it is"}
	case s.ReleasedGeneration == c.Generation && !o.unchecked():
		return o.released()
	case s.StalledGeneration == c.Generation:
		reason, message := sondev1.ReasonNotReleased, "the last attempt failed"
		if released := condition(c, sondev1.ConditionReleased); released != nil {
			reason, message = released.Reason, released.Message
		}
		return plan{state: stalled, reason: reason, message: message}
	case o.paused:
		return plan{state: held, reason: sondev1.ReasonPaused, message: "a cluster admin has paused the operator (key " + pause.Key + " of ConfigMap " + pause.ConfigMapName + ")"}
	case s.NextAttempt != nil && o.isAhead(s.NextAttempt.Time, maxDelay):
		message := fmt.Sprintf("attempt %d failed; another one follows", s.Attempts)
		if released := condition(c, sondev1.ConditionReleased); released != nil {
			message += ": " + released.Message
		}
		return plan{state: reconciling, reason: sondev1.ReasonRetrying, message: message, after: s.NextAttempt.Sub(o.now)}
	case o.isQueued():
		return plan{
			state: reconciling, reason: sondev1.ReasonQueued, queued: true, after: queuedDelay,
			message: fmt.Sprintf("Jobs of %d other Collectors run, %d of them in this namespace; this one follows", o.running, o.runningHere),
		}
	}
	return plan{state: reconciling, reason: sondev1.ReasonReleasing, message: "a Job runs Helm", start: true}
}

// isQueued reports whether a run has to wait for those of other Collectors.
func (o *observation) isQueued() bool { return isFull(o.running, o.runningHere) }

// released is the plan of a release that is as the spec says. Its objects may have to be looked at; until then it counts as ready.
func (o *observation) released() plan {
	p := o.ready()
	switch {
	case !o.lookIsDue():
	case o.isQueued():
		p.queued, p.after = true, queuedDelay
	default:
		p.start, p.after = true, 0
	}
	return p
}

// unchecked reports whether no attempt has succeeded since the Collector was created, or since a user asked for another one.
func (o *observation) unchecked() bool { return o.collector.Status.Checked == nil }

// ready describes a release that is as the spec says.
func (o *observation) ready() plan {
	s := &o.collector.Status
	p := plan{state: ready, reason: sondev1.ReasonUpToDate, message: fmt.Sprintf("revision %d of chart version %s is deployed, and its objects were ready", s.Revision, s.ChartVersion)}
	switch released := condition(o.collector, sondev1.ConditionReleased); {
	case released == nil:
	case released.Status == metav1.ConditionFalse:
		p = plan{state: reconciling, reason: sondev1.ReasonRetrying, message: "the release's objects could not be checked; another look follows: " + released.Reason + ": " + released.Message}
	case released.Reason == release.ReasonDrifted:
		p.reason, p.message = released.Reason, released.Message
	}
	switch {
	case o.paused: // its end wakes all Collectors
	case s.NextAttempt != nil:
		p.after = max(s.NextAttempt.Sub(o.now), time.Second)
	case looksForDrift(o.collector) || len(o.runs) == 0:
		p.after = max(s.Checked.Add(intervalOf(o.collector)).Sub(o.now), time.Second)
	}
	return p
}

// lookIsDue reports whether it is time to look at the objects of a release that is as the spec says. Besides drift, the
// release may be gone, and its last Job with it. The operator finds the release of a hub's Collector by its Job, so a look also replaces
// a Job that is gone: at once if that Job had not ended, because the release may be half made. Otherwise the interval since the last
// success has to pass, as a policy may delete each Job that has ended.
func (o *observation) lookIsDue() bool {
	s := &o.collector.Status
	switch {
	case o.paused:
		return false
	case s.NextAttempt != nil:
		return !o.isAhead(s.NextAttempt.Time, maxDelay)
	case o.lostLast(), len(o.runs) == 0 && (!o.anchored || s.Job != s.ReportedJob):
		return true
	}
	return (looksForDrift(o.collector) || len(o.runs) == 0) && !o.isAhead(s.Checked.Add(intervalOf(o.collector)), intervalOf(o.collector))
}

// lostLast reports whether the last Job is gone before its report was read, while an earlier one still exists. If it runs, and only the
// cache lacks it, start waits.
func (o *observation) lostLast() bool {
	last, s := o.last(), &o.collector.Status
	return last != nil && last.number < s.Runs && o.reportedRun() < s.Runs
}

// isAhead reports whether t, which is at most a delay ahead when it is written, has not come. If it is further ahead, the clock of an earlier
// leader was wrong.
func (o *observation) isAhead(t time.Time, most time.Duration) bool {
	return o.now.Before(t) && !t.After(o.now.Add(most+time.Minute))
}

// growing is a delay that grows with how long the Collector has been reconciled: users can hold what it waits for.
func (o *observation) growing(least time.Duration) time.Duration {
	c := condition(o.collector, sondev1.ConditionReconciling)
	if c == nil || c.Status != metav1.ConditionTrue {
		return least
	}
	return min(max(o.now.Sub(c.LastTransitionTime.Time).Abs()/4, least), maxClosedDelay) // negative if an earlier leader's clock was ahead
}

// slowStart is how long a Pod may take to start before the status says so.
const slowStart = 30 * time.Second

// busy returns the plan of a Collector whose releaser runs.
func (o *observation) busy() (plan, bool) {
	p := plan{state: reconciling, reason: sondev1.ReasonReleasing}
	current := o.unended()
	switch {
	case current != nil && current.generation == o.collector.Generation && o.collector.Status.ReleasedGeneration == current.generation && !o.unchecked():
		p = o.ready() // the Job only looks
		p.after = 0
	case current != nil:
		p.message = "Job " + current.job.Name + " runs Helm"
		switch w, age := waiting(current), o.now.Sub(current.job.CreationTimestamp.Time); {
		case w != "":
			p.message += "; its Pod waits: " + w
		case current.started():
		case age < slowStart:
			p.after = slowStart - age
		default:
			p.message += "; its Pod has not started: the Events of the Job and of its Pod say why"
		}
	case o.stray != "":
		p.message, p.after = o.stray+" and has not ended: wait for its end, or delete it", o.growing(strayDelay)
	default:
		return p, false
	}
	return p, true
}
