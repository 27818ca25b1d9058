package capture

import (
	"fmt"
	"maps"
	"slices"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

const (
	// targetTimeout is how long a capture waits for its target to have a Pod that can be captured.
	targetTimeout = target.Timeout
	// retryWindow: so long after the start a Pod of the first pass that the status does not list may
	// still get its Job. After it, a missing Job is one that was deleted because it came to nothing.
	retryWindow = outcome.StartTimeout - time.Minute
	// stopDelay is how soon a probe that was asked to end is looked at again.
	stopDelay = 2 * time.Second
	// soonest a pass by time alone may follow.
	soonest = time.Second
)

// plan is what one pass will write, what it has found out, and when to look again.
type plan struct {
	start    time.Time // of the capture; zero while it has not begun
	entries  []sondev1.PodResult
	create   []creation
	stop     []stopping
	remove   []*slim.Job
	evict    []*podSeen
	sweep    []*podSeen // after their probes
	cleanUp  bool       // everything that was made for the capture
	over     bool       // nothing more will be captured
	ended    time.Time
	again    time.Duration
	admitted bool
	// room that is left, and whether a Pod waits for some.
	room   room
	queued bool
	// leaving says that the account of a Pod's capture, or how its gate ended, was read from a Pod that is being deleted.
	leaving bool
	// observed says that the rest is worth something.
	observed bool
}

// creation of one Pod's Job.
type creation struct {
	p        *podSeen
	duration time.Duration
}

// stopping of one Pod's probe.
type stopping struct {
	p      *podSeen
	reason string
}

// planFor decides from what was seen; it calls nothing and keeps nothing.
func planFor(capture sondev1.Capture, seen observed, review time.Duration) plan {
	if capture.CaptureStatus().Phase.Final() {
		return planFinal(capture, seen)
	}
	todo := plan{start: started(capture, seen), admitted: !seen.admission.refused(), observed: true, room: seen.room}
	todo.entries = make([]sondev1.PodResult, 0, len(seen.pods))
	todo.room.onNode = maps.Clone(seen.room.onNode)
	next := seen.now.Add(review - RecentFor(review))
	live := false
	for _, p := range seen.pods {
		v, part := todo.planPod(capture, seen, p)
		if !part {
			continue
		}
		todo.entries = append(todo.entries, v.Entry)
		live = live || !v.Entry.Phase.Final()
		next = earlier(next, v.Again)
		if v.Ended.After(todo.ended) {
			todo.ended = v.Ended
		}
	}
	if len(todo.create) > 0 && todo.start.IsZero() {
		todo.start = seen.now
	}
	todo.over = !live && isOver(capture, seen, todo)
	todo.again = max(todo.wake(capture, seen, next).Sub(seen.now), soonest)
	if todo.over {
		todo.again = soonest // then the final capture is cleaned up when its time has come
	}
	return todo
}

// givesUp reports whether the plan has a verdict on a Pod of which there is no account, nor seems to be a probe that may
// still leave one.
func (todo *plan) givesUp(seen observed) bool {
	for _, p := range seen.pods {
		if p.before.Phase.Final() || p.agent != nil && probeEnded(p.agent.Expand()) {
			continue
		}
		for i := range todo.entries {
			if todo.entries[i].UID == string(p.uid) && todo.entries[i].Phase.Final() {
				return true
			}
		}
	}
	return false
}

// wake is when to look again at the latest, as far as the whole capture says; next is when its Pods do.
func (todo *plan) wake(capture sondev1.Capture, seen observed, next time.Time) time.Time {
	if end := todo.start.Add(seen.duration); !todo.start.IsZero() && seen.now.Before(end) {
		next = earlier(next, end)
	}
	if late := capture.GetCreationTimestamp().Add(targetTimeout); todo.start.IsZero() && seen.now.Before(late) {
		next = earlier(next, late)
	}
	if todo.queued {
		next = earlier(next, seen.now.Add(queueDelay))
	}
	if len(todo.stop) > 0 {
		next = earlier(next, seen.now.Add(stopDelay))
	}
	return next
}

// planPod judges one Pod and adds what is to be done about it. It reports whether the Pod has a part
// in the capture.
func (todo *plan) planPod(capture sondev1.Capture, seen observed, p *podSeen) (outcome.Verdict, bool) {
	made := p.made()
	joins := todo.joins(capture, seen, p)
	if !p.known && !made && !joins {
		return outcome.Verdict{}, false
	}
	ending := endingOf(capture, seen, p)
	v := outcome.Judge(seen.about(capture, p, ending), seen.now)
	todo.planGate(capture, seen, p, &v)
	todo.leaving = todo.leaving || v.Entry.Phase.Final() && !p.before.Phase.Final() && p.leaving()
	todo.planSweep(capture, p, &v)
	switch {
	case v.Entry.Phase.Final():
	case v.Stop:
		todo.stop = append(todo.stop, stopping{p, ending})
	case made:
	case joins:
		todo.join(&v, seen, p)
	default:
		refuse(&v, p.before.Reason, p.before.Message)
	}
	if v.DeleteJob && p.job != nil {
		// Not before everybody can read why: a verdict that is lost in a crash or a conflict would else be followed by
		// a second Job, or by another verdict on a result that is gone.
		if p.before.Phase.Final() {
			todo.remove = append(todo.remove, p.job)
		} else {
			v.Again = seen.now
		}
	}
	return v, true
}

// join plans the Job of a Pod that has none, unless the Pod cannot or must not be captured.
func (todo *plan) join(v *outcome.Verdict, seen observed, p *podSeen) {
	switch {
	case p.onNode != "" && seen.admission.nodesDenied() != "":
		refuse(v, sondev1.ReasonHostNetworkDenied, onNode[p.onNode]+": "+seen.admission.nodesDenied())
	case p.sandbox != "":
		refuse(v, sondev1.ReasonSandboxedRuntime, fmt.Sprintf("RuntimeClass %q runs the Pod in a sandbox whose network the node cannot see", p.sandbox))
	default:
		if reason, message := todo.room.full(p); reason != "" {
			v.Entry.Reason, v.Entry.Message, todo.queued = reason, message, true
			return
		}
		todo.room.taken(p)
		todo.create = append(todo.create, creation{p, seen.podDuration(todo.start, seen.now)})
	}
}

// joins reports whether a Job may be made for the Pod now.
func (todo *plan) joins(capture sondev1.Capture, seen observed, p *podSeen) bool {
	status := capture.CaptureStatus()
	switch {
	case p.pod == nil, p.pod.GetDeletionTimestamp() != nil, endingOf(capture, seen, p) != "", seen.compiled.unusable.reason != "":
		return false
	case todo.start.IsZero():
		return waits(p.before) || seen.now.Before(capture.GetCreationTimestamp().Add(targetTimeout))
	case !seen.now.Before(todo.start.Add(seen.duration)):
		return false
	case p.known, status.StartTime == nil:
		return true
	case status.PodsOmitted > 0 && !p.pod.GetCreationTimestamp().After(todo.start):
		return slices.ContainsFunc(status.Pods, waits) || seen.now.Before(todo.start.Add(retryWindow))
	default:
		return capture.Common().FollowPods
	}
}

// refuse makes the entry of a Pod final that will get no Job.
func refuse(v *outcome.Verdict, reason, message string) {
	if reason == "" || reason == sondev1.ReasonPending {
		reason, message = sondev1.ReasonNotStarted, "no Job was made for the Pod before the capture ended"
	}
	v.Entry.Phase, v.Entry.Reason, v.Entry.Message = sondev1.PhaseFailed, reason, message
}

// endingOf is the reason for which the Pod's capture is to be ended; empty while it goes on.
func endingOf(capture sondev1.Capture, seen observed, p *podSeen) string {
	switch {
	case seen.admission.reason == sondev1.ReasonPaused:
		return sondev1.ReasonPaused
	case seen.admission.refused():
		return sondev1.ReasonAccessRevoked
	case capture.Common().Stop:
		return sondev1.ReasonStopped
	case p.pod == nil && p.gone:
		return sondev1.ReasonTargetGone
	case p.job != nil && p.onNode != "" && seen.admission.nodesDenied() != "":
		return sondev1.ReasonAccessRevoked
	default:
		return ""
	}
}

// isOver reports whether nothing more can join; the Pods that have joined are all final.
func isOver(capture sondev1.Capture, seen observed, todo plan) bool {
	switch {
	case seen.admission.refused(), capture.Common().Stop, seen.compiled.unusable.reason != "":
		return true
	case todo.start.IsZero():
		return len(todo.entries) > 0 || !seen.now.Before(capture.GetCreationTimestamp().Add(targetTimeout))
	default:
		return !capture.Common().FollowPods || !seen.workload.Found || !seen.now.Before(todo.start.Add(seen.duration))
	}
}

// planFinal keeps what is final, and removes what was made when the last file's time is over.
func planFinal(capture sondev1.Capture, seen observed) plan {
	todo := plan{start: started(capture, seen), over: true, observed: true}
	var until time.Time
	for _, p := range seen.pods {
		if !p.known {
			continue
		}
		v := outcome.Judge(seen.about(capture, p, ""), seen.now)
		todo.entries = append(todo.entries, v.Entry)
		if v.DeleteJob {
			todo.remove = append(todo.remove, p.job)
		}
		if t := v.Entry.AvailableUntil; t != nil && t.After(until) {
			until = t.Time
		}
	}
	status := capture.CaptureStatus()
	if t := status.CompletionTime; t != nil && status.PodsOmitted > 0 && t.Add(seen.retain).After(until) {
		until = t.Add(seen.retain) // files of Pods that the status does not list
	}
	made := seen.jobs > 0 || seen.configMap != "" || seen.secret != ""
	switch {
	case made && !seen.now.Before(until):
		todo.cleanUp = true
		todo.again = refusedDelay // until nothing is left
	case made:
		todo.again = max(until.Sub(seen.now), soonest)
	}
	return todo
}

// started is when the first Job was made; also where the status could not be written after it.
func started(capture sondev1.Capture, seen observed) time.Time {
	if start := capture.CaptureStatus().StartTime; start != nil {
		return start.Time
	}
	return seen.firstJob
}

// podDuration of a Pod whose Job is made at the given time: the whole duration for those of the
// start, what is left of it for those that join.
func (seen observed) podDuration(start, made time.Time) time.Duration {
	if start.IsZero() {
		return seen.duration
	}
	return min(seen.duration, max(start.Add(seen.duration).Sub(made), time.Second))
}

// about is what is known of a Pod, for its verdict.
func (seen observed) about(capture sondev1.Capture, p *podSeen, ending string) outcome.Observed {
	s := outcome.Observed{
		Before: p.before, Node: p.node, Refusal: p.refusal, EndReason: ending,
		Recounted: p.recounted, RecountPending: p.uncounted,
		Duration: seen.duration, RetainFor: seen.retain,
	}
	if p.agent != nil {
		s.Agent = p.agent.Expand()
	}
	if p.job != nil {
		s.Job = p.job.Expand()
		s.Duration = seen.podDuration(started(capture, seen), s.Job.CreationTimestamp.Time)
	}
	return s
}
