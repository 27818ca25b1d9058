package capture

import (
	"fmt"
	"maps"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

const (
	// targetTimeout is how long a capture waits for its target to have a Pod that can be captured.
	targetTimeout = target.Timeout
	// retryWindow is how long after the start a Pod of the first pass may still get its Job if the status does not list it.
	// After that, a Job that is missing was deleted because it failed.
	retryWindow = outcome.StartTimeout - time.Minute
	// stopDelay is the delay of the next pass after a probe was asked to end.
	stopDelay = 2 * time.Second
	// soonest is the shortest delay of a pass that no event causes.
	soonest = time.Second
)

// plan holds the writes of one pass, its conclusions, and when the next pass is due.
type plan struct {
	start    time.Time // of the capture; zero before it has begun
	end      time.Time // of the capture; zero until it is known (window.go)
	entries  []sondev1.PodResult
	create   []creation
	stop     []stopping
	remove   []*slim.Job
	surplus  []*podState // Pods with more than one Job
	evict    []*podState
	sweep    []*podState // after their probes
	cleanUp  bool        // delete all objects of the capture
	over     bool        // no Pod will be captured any more
	closing  bool        // it will be over, when no Pod gets the gate any more
	ended    time.Time
	again    time.Duration
	admitted bool
	// room that is left, and whether a Pod waits for it.
	room   room
	queued bool
	// deleting reports that an account, the end of a gate, or that a Pod departed, may not be readable again: the Pod is being
	// deleted, or only this manager knows of it.
	deleting bool
	// withdraws reports that files of a final entry are no longer offered.
	withdraws bool
	// valid is false if observing failed and the plan is empty.
	valid bool
}

// creation of one Pod's Job.
type creation struct {
	p        *podState
	duration time.Duration
}

// stopping of one Pod's probe.
type stopping struct {
	p      *podState
	reason string
}

// planFor is pure: it decides from the observation alone.
func planFor(capture sondev1.Capture, observed observation, review time.Duration) plan {
	if capture.CaptureStatus().Phase.Final() {
		return planFinal(capture, observed)
	}
	planned := plan{
		start: started(capture, observed), end: publishedEnd(capture, observed),
		admitted: !observed.admission.refused(), valid: true, room: observed.room,
	}
	planned.entries = make([]sondev1.PodResult, 0, len(observed.pods))
	planned.room.onNode = maps.Clone(observed.room.onNode)
	next := observed.now.Add(review - RecentFor(review))
	live := false
	for _, p := range observed.pods {
		v, belongs := planned.planPod(capture, observed, p)
		if !belongs {
			continue
		}
		planned.entries = append(planned.entries, v.Entry)
		live = live || !v.Entry.Phase.Final()
		next = earlier(next, v.Again)
		if v.Ended.After(planned.ended) {
			planned.ended = v.Ended
		}
	}
	if len(planned.create) > 0 && planned.start.IsZero() {
		planned.start = observed.now
	}
	if planned.end.IsZero() {
		planned.end = planned.newEnd(observed)
	}
	planned.over = !live && isOver(capture, observed, planned)
	if planned.over && gateStaysOpen(capture, observed) {
		planned.over, planned.closing = false, true
	}
	planned.endEarly(observed.now)
	planned.again = max(planned.nextPass(capture, observed, next).Sub(observed.now), soonest)
	if planned.over || planned.closing || awaitsGate(capture, observed) {
		planned.again = soonest // the next pass plans the clean-up of the final capture, or opens or closes the gate
	}
	return planned
}

// judgesWithoutAccount reports whether the plan makes the entry of a Pod final although no probe of it has ended.
func (planned *plan) judgesWithoutAccount(observed observation) bool {
	for _, p := range observed.pods {
		if p.before.Phase.Final() || p.agent != nil && probeEnded(p.agent.Expand()) {
			continue
		}
		for i := range planned.entries {
			if planned.entries[i].UID == string(p.uid) && planned.entries[i].Phase.Final() {
				return true
			}
		}
	}
	return false
}

// startsForGood reports whether the plan starts a capture of the Pods that exist at its start, and of no later ones.
func (planned *plan) startsForGood(capture sondev1.Capture) bool {
	return !capture.Common().FollowPods && capture.CaptureStatus().StartTime == nil && !planned.start.IsZero()
}

// withdraws reports whether a verdict takes files from a Pod's entry.
func withdraws(p *podState, v outcome.Verdict) bool {
	return p.before.AvailableUntil != nil && v.Entry.AvailableUntil == nil
}

// nextPass is when the next pass is due at the latest; next is when the capture's Pods need one.
func (planned *plan) nextPass(capture sondev1.Capture, observed observation, next time.Time) time.Time {
	if observed.now.Before(planned.end) {
		next = earlier(next, planned.end)
	}
	if latest := planned.start.Add(outcome.StartTimeout); !planned.start.IsZero() && planned.end.IsZero() {
		next = earlier(next, latest)
	}
	if late := capture.GetCreationTimestamp().Add(targetTimeout); planned.start.IsZero() && observed.now.Before(late) {
		next = earlier(next, late)
	}
	if planned.queued || capture.Common().Gate != nil && planned.room.fullOfJobs() {
		next = earlier(next, observed.now.Add(queueDelay))
	}
	if len(planned.stop) > 0 {
		next = earlier(next, observed.now.Add(stopDelay))
	}
	return next
}

// planPod judges one Pod and adds the actions for it. It reports whether the Pod belongs to the capture.
func (planned *plan) planPod(capture sondev1.Capture, observed observation, p *podState) (outcome.Verdict, bool) {
	hadJob := p.hadJob()
	joins := planned.joins(capture, observed, p)
	if !joins && !planned.hasEntry(capture, observed, p) {
		return outcome.Verdict{}, false
	}
	endReason := endReasonOf(capture, observed, p)
	v := observed.judge(capture, p, endReason)
	v.Entry.ContainersNotFound = p.containersNotFound(capture, v.Entry.ContainersNotFound)
	planned.planGate(capture, observed, p, &v)
	missStart(&v)
	planned.deleting = planned.deleting || v.Entry.Phase.Final() && !p.before.Phase.Final() && p.deleting()
	planned.withdraws = planned.withdraws || withdraws(p, v)
	planned.planNodeSweep(capture, p, &v)
	planned.planSurplus(observed, p, &v)
	switch {
	case v.Entry.Phase.Final():
	case v.Stop:
		planned.stop = append(planned.stop, stopping{p, endReason})
	case hadJob:
	case joins:
		planned.planJob(&v, observed, p)
	default:
		refuse(&v, p.before.Reason, p.before.Message)
	}
	if v.DeleteJob && p.job != nil {
		// Delete after the verdict was written. If a crash or a conflict lost the verdict, the next pass would create a second
		// Job, or judge a result that is gone.
		if p.before.Phase.Final() {
			planned.remove = append(planned.remove, p.job)
		} else {
			v.Again = observed.now
		}
	}
	return v, true
}

// planSurplus plans that a Pod keeps one Job, which the status names before the others are deleted: two managers that act at the
// same time then keep the same one.
func (planned *plan) planSurplus(observed observation, p *podState, v *outcome.Verdict) {
	switch {
	case len(p.surplus) == 0:
	case p.before.Job == p.job.GetName():
		planned.surplus = append(planned.surplus, p)
	default:
		v.Again = observed.now
	}
}

// planJob plans the Job of a Pod that has none, unless the Pod cannot or must not be captured.
func (planned *plan) planJob(v *outcome.Verdict, observed observation, p *podState) {
	switch {
	case p.onNode != "" && observed.admission.nodesDenied() != "":
		refuse(v, sondev1.ReasonHostNetworkDenied, onNode[p.onNode]+": "+observed.admission.nodesDenied())
	case p.sandbox != "":
		refuse(v, sondev1.ReasonSandboxedRuntime, fmt.Sprintf("RuntimeClass %q runs the Pod in a sandbox whose network the node cannot see", p.sandbox))
	default:
		if reason, message := planned.room.full(p); reason != "" {
			v.Entry.Reason, v.Entry.Message, planned.queued = reason, message, true
			return
		}
		switch p.targetNode {
		case nodeUnread:
			planned.queued = true
			return
		case nodeMissing:
			refuse(v, sondev1.ReasonNodeLost, fmt.Sprintf("node %s does not exist: no kubelet runs the Pod", p.before.Node))
			return
		case nodeExists:
		}
		planned.room.take(p)
		// It does not wait for a ceiling any more: the end of the capture awaits its probe (awaitsFirst).
		v.Entry.Reason, v.Entry.Message = sondev1.ReasonPending, ""
		planned.create = append(planned.create, creation{p, observed.podDuration(planned.end, observed.now)})
	}
}

// joins reports whether the Pod may get a Job now.
func (planned *plan) joins(capture sondev1.Capture, observed observation, p *podState) bool {
	status := capture.CaptureStatus()
	switch {
	case p.pod == nil, p.overdue(observed.now), endReasonOf(capture, observed, p) != "", observed.compiled.unusable.reason != "":
		return false
	case joinsByGate(capture, p):
		return true
	case planned.start.IsZero():
		// While the capture waits for a ceiling it has not begun: a Pod that appears then belongs to it, however late that is.
		// The operator tries for as long to create the first Jobs as it waits for a target, also after the queue.
		return isQueued(p.before) || slices.ContainsFunc(status.Pods, isQueued) || triesToStart(capture, observed.now) ||
			observed.now.Before(capture.GetCreationTimestamp().Add(targetTimeout))
	case !planned.end.IsZero() && !observed.now.Before(planned.end):
		return false
	case p.known, status.StartTime == nil:
		return true
	case status.PodsOmitted > 0 && !p.pod.GetCreationTimestamp().After(planned.start):
		return slices.ContainsFunc(status.Pods, isQueued) || observed.now.Before(planned.start.Add(retryWindow))
	default:
		return planned.wants(capture, p.pod.GetCreationTimestamp().Time)
	}
}

// wants reports whether a Pod that was created at this time belongs to a capture that has begun. Without followPods, that is a Pod that existed
// at the start, with or without a node.
func (planned *plan) wants(capture sondev1.Capture, created time.Time) bool {
	return capture.Common().FollowPods || !created.After(planned.start)
}

// triesToStart reports whether the first Jobs could not be created, for less than targetTimeout.
func triesToStart(capture sondev1.Capture, now time.Time) bool {
	c := apimeta.FindStatusCondition(capture.CaptureStatus().Conditions, sondev1.ConditionProbesAllowed)
	return c != nil && c.Status == metav1.ConditionFalse && now.Before(c.LastTransitionTime.Add(targetTimeout))
}

// refuse makes final the entry of a Pod that gets no Job.
func refuse(v *outcome.Verdict, reason, message string) {
	if reason == "" || reason == sondev1.ReasonPending {
		reason, message = sondev1.ReasonNotStarted, "no Job was created for the Pod before the capture ended"
	}
	v.Entry.Phase, v.Entry.Reason, v.Entry.Message = sondev1.PhaseFailed, reason, message
}

// endReasonOf says why the Pod's capture must end; empty while it may continue.
func endReasonOf(capture sondev1.Capture, observed observation, p *podState) string {
	switch {
	case observed.admission.reason == sondev1.ReasonPaused:
		return sondev1.ReasonPaused
	case observed.admission.refused():
		return sondev1.ReasonAccessRevoked
	case capture.Common().Stop:
		return sondev1.ReasonStopped
	case p.gone:
		return sondev1.ReasonTargetGone
	case p.job != nil && p.onNode != "" && observed.admission.nodesDenied() != "":
		return sondev1.ReasonAccessRevoked
	default:
		return ""
	}
}

// isOver reports whether no Pod can join any more. The caller has checked that all entries are final.
func isOver(capture sondev1.Capture, observed observation, planned plan) bool {
	switch {
	case observed.admission.refused(), capture.Common().Stop, observed.compiled.unusable.reason != "":
		return true
	case planned.start.IsZero():
		return len(planned.entries) > 0 || !observed.now.Before(capture.GetCreationTimestamp().Add(targetTimeout))
	default:
		return !capture.Common().FollowPods || !observed.workload.Found || !planned.end.IsZero() && !observed.now.Before(planned.end)
	}
}

// planFinal keeps the final entries, and deletes the objects when the retention of the last file is over.
func planFinal(capture sondev1.Capture, observed observation) plan {
	planned := plan{start: started(capture, observed), over: true, valid: true}
	var until time.Time
	for _, p := range observed.pods {
		if !p.known {
			planned.giveUp(p)
			continue
		}
		v := outcome.Judge(observed.judgeInput(capture, p, ""), observed.now)
		planned.entries = append(planned.entries, v.Entry)
		planned.withdraws = planned.withdraws || withdraws(p, v)
		planned.planSurplus(observed, p, &v)
		if v.DeleteJob {
			planned.remove = append(planned.remove, p.job)
		}
		if t := v.Entry.AvailableUntil; t != nil && t.After(until) {
			until = t.Time
		}
	}
	until = later(until, unlistedUntil(capture.CaptureStatus(), observed.retain))
	switch {
	case observed.hasObjects() && !observed.now.Before(until):
		planned.cleanUp = true
		planned.again = refusedDelay // until all objects are gone
	case observed.hasObjects():
		planned.again = max(until.Sub(observed.now), soonest)
	}
	return planned
}

// giveUp plans to delete the Job of a Pod that the status has no room to list, if its probe has not ended. The capture is over, so the
// probe would begin too late, and nothing else would stop it.
func (planned *plan) giveUp(p *podState) {
	if p.job == nil || target.JobEnded(p.job.Expand()) || p.agent != nil && probeEnded(p.agent.Expand()) {
		return
	}
	planned.remove = append(planned.remove, p.job)
	planned.withdraws = true // decide by the API server's state: the cache may not know yet that the probe has ended
}

// started is when the first Job was created, even if the status could not be written after it.
func started(capture sondev1.Capture, observed observation) time.Time {
	if start := capture.CaptureStatus().StartTime; start != nil {
		return start.Time
	}
	return observed.firstJob
}

// judge returns the verdict on a Pod while the capture lasts.
func (observed observation) judge(capture sondev1.Capture, p *podState, endReason string) outcome.Verdict {
	v := outcome.Judge(observed.judgeInput(capture, p, endReason), observed.now)
	if p.departed != nil {
		refuse(&v, sondev1.ReasonTargetGone, departedMessage)
	}
	return v
}

// judgeInput collects what outcome.Judge needs to know of a Pod.
func (observed observation) judgeInput(capture sondev1.Capture, p *podState, endReason string) outcome.Observed {
	s := outcome.Observed{
		Before: p.before, Node: p.node, Refusal: p.refusal, EndReason: endReason,
		Stop: outcome.Event{Happened: capture.Common().Stop}, Gone: outcome.Event{Happened: p.gone, At: p.goneAt}, Leaving: p.leaves(),
		Recounted: p.recounted, RecountPending: p.recountPending,
		Interfaces: observed.interfaces, Live: p.live,
		Duration: observed.duration, RetainFor: observed.retain,
	}
	if observed.stop != nil {
		s.Stop = *observed.stop
	}
	if p.agent != nil {
		s.Agent = p.agent.Expand()
	}
	if p.job != nil {
		s.Job = p.job.Expand()
		s.Duration = observed.podDuration(publishedEnd(capture, observed), s.Job.CreationTimestamp.Time)
	}
	return s
}
