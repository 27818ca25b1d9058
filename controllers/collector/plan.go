package collector

import (
	"fmt"
	"time"

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
	case s.ReleasedGeneration == c.Generation && !o.checkIsDue():
		return o.ready()
	case s.StalledGeneration == c.Generation:
		reason, message := sondev1.ReasonNotReleased, "the last attempt failed"
		if released := condition(c, sondev1.ConditionReleased); released != nil {
			reason, message = released.Reason, released.Message
		}
		return plan{state: stalled, reason: reason, message: message}
	case o.paused:
		return plan{state: held, reason: sondev1.ReasonPaused, message: "a cluster admin has paused the operator (key " + pause.Key + " of ConfigMap " + pause.ConfigMapName + ")"}
	case s.NextAttempt != nil && o.now.Before(s.NextAttempt.Time):
		message := fmt.Sprintf("attempt %d failed; another one follows", s.Attempts)
		if released := condition(c, sondev1.ConditionReleased); released != nil {
			message += ": " + released.Message
		}
		return plan{state: reconciling, reason: sondev1.ReasonRetrying, message: message, after: s.NextAttempt.Sub(o.now)}
	case o.running >= maxRunning || o.runningHere >= maxRunning/2:
		return plan{
			state: reconciling, reason: sondev1.ReasonQueued, after: queuedDelay,
			message: fmt.Sprintf("Jobs of %d other Collectors run, %d of them in this namespace; this one follows", o.running, o.runningHere),
		}
	}
	return plan{state: reconciling, reason: sondev1.ReasonReleasing, message: "a Job runs Helm", start: true}
}

// ready is the plan of a release that is as the spec says.
func (o *observation) ready() plan {
	s := &o.collector.Status
	p := plan{state: ready, reason: sondev1.ReasonUpToDate, message: fmt.Sprintf("revision %d of chart version %s is deployed, and its objects are ready", s.Revision, s.ChartVersion)}
	if released := condition(o.collector, sondev1.ConditionReleased); released != nil && released.Reason == release.ReasonDrifted {
		p.reason, p.message = released.Reason, released.Message
	}
	if driftOf(o.collector) != "" && s.Checked != nil {
		p.after = max(s.Checked.Add(intervalOf(o.collector)).Sub(o.now), time.Second)
	}
	return p
}

// checkIsDue reports whether it is time to look at the objects of a release that is as the spec says.
func (o *observation) checkIsDue() bool {
	checked := o.collector.Status.Checked
	return driftOf(o.collector) != "" && !o.paused && (checked == nil || !o.now.Before(checked.Add(intervalOf(o.collector))))
}

// busy returns the plan of a Collector whose releaser runs.
func (o *observation) busy() (plan, bool) {
	p := plan{state: reconciling, reason: sondev1.ReasonReleasing}
	last := o.last()
	switch {
	case last != nil && !last.ended() && last.generation == o.collector.Generation && o.collector.Status.ReleasedGeneration == last.generation:
		p = o.ready() // the Job only looks for drift
		p.after = 0
	case last != nil && !last.ended():
		p.message = "Job " + last.job.Name + " runs Helm"
		if w := waiting(last); w != "" {
			p.message += "; its Pod waits: " + w
		}
	case o.stray != "":
		p.message, p.after = "Pod "+o.stray+" of an earlier Job still runs", queuedDelay
	default:
		return p, false
	}
	return p, true
}
