// Package outcome judges how the capture of one Pod stands, from what the API server says about its
// Job, its agent's Pod and its node. It is pure. What is final stays: a verdict that was published is
// never improved or worsened later, except that files that are gone are not offered any more.
package outcome

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Time limits.
const (
	// RefusedAfter: a Job that has no Pod by then is looked into.
	RefusedAfter = 30 * time.Second
	// StartTimeout: an agent that has not attached by then is given up.
	StartTimeout = 5 * time.Minute
	// processWait is how long a probe waits for the target's first process.
	processWait = 60 * time.Second
	// endGrace: a probe that has not ended so long after its time is looked into.
	endGrace = 60 * time.Second
	// recountWait is how long the keeper of a killed probe may take to say what its files hold, and recountAgain how soon
	// it is asked again.
	recountWait, recountAgain = 30 * time.Second, 2 * time.Second
	// skew of the node's clock: a keeper that ends so little too early has kept its file long enough.
	skew = 5 * time.Second
)

// Node is what is known of the node of a Pod.
type Node int

// States of a node.
const (
	NodeUnknown Node = iota // not asked
	NodeReady
	NodeLost // gone, or it does not report
)

// Seen is what was observed about one target Pod.
type Seen struct {
	// Before is the Pod's entry of the last pass, or one with UID, name and node for a new Pod.
	Before sondev1.PodResult
	// Job and Agent are nil when they do not exist (any more).
	Job   *batchv1.Job
	Agent *corev1.Pod
	Node  Node
	// Ending is the reason for which the operator ends this Pod's capture; empty while it may go on.
	Ending string
	// Recounted is the account of a probe that was killed, with what its files really hold; nil when nobody asked, or
	// the keeper cannot tell. Uncounted says that the keeper was asked and did not answer.
	Recounted *account.Account
	Uncounted bool
	// Refusal is why the Job has no Pod, in the API server's words; empty when not known.
	Refusal string
	// Duration of this Pod's capture, and of the retention of its file after it.
	Duration, RetainFor time.Duration
}

// Verdict is how the capture of one Pod stands, and what is to be done about it.
type Verdict struct {
	Entry sondev1.PodResult
	// Stop: the probe is to be asked to end, with Seen.Ending as the reason.
	Stop bool
	// DeleteJob: the Job is of no more use.
	DeleteJob bool
	// Again is when time alone changes the verdict; zero if it does not.
	Again time.Time
	// Ended is when the probe ended; zero if it did not, or nobody knows when.
	Ended time.Time
	// Cut: it has become final by this verdict, and the probe had no last word, so that what it had attached may still be there.
	Cut bool
}

// Judge returns the verdict at the time now.
func Judge(s Seen, now time.Time) Verdict {
	v := Verdict{Entry: *s.Before.DeepCopy()}
	if s.Job != nil && !s.Before.Phase.Final() {
		v.Entry.Job = s.Job.Name
	}
	probe := container(s.Agent, captureconfig.ContainerProbe)
	switch {
	case s.Before.Phase.Final():
		v.judgeFinal(s, probe, now)
	case probe != nil && probe.State.Terminated != nil:
		v.judgeEnded(s, probe.State.Terminated, now)
	case s.Agent != nil && (s.Agent.Status.Phase == corev1.PodFailed || s.Agent.Status.Phase == corev1.PodSucceeded):
		v.judgePodEnded(s)
	case s.Agent != nil && s.Node == NodeLost:
		v.end(s, sondev1.ReasonNodeLost, "node "+v.Entry.Node+" does not report; its file cannot be fetched")
	case s.Agent != nil:
		v.judgeAgent(s, probe, now)
	default:
		v.judgeWithoutAgent(s, now)
	}
	v.Entry.Message = text.OneLine(v.Entry.Message, 512)
	v.Cut = v.Entry.Phase.Final() && s.cut(probe)
	return v
}

// cut: with a node that is lost, a probe is either gone, with all of the kernel, or ends by itself; and so does one that runs
// and whose Job is deleted.
func (s Seen) cut(probe *corev1.ContainerStatus) bool {
	switch {
	case s.Before.Phase.Final(), s.Node == NodeLost:
		return false
	case probe != nil && probe.State.Terminated != nil:
		return wordless(probe.State.Terminated)
	default:
		return s.Before.Phase == sondev1.PhaseCapturing && (probe == nil || probe.State.Running == nil)
	}
}

// judgeFinal keeps a final entry, takes back files that are gone, and has a Job deleted that never
// came to anything, or whose probe nobody can reach any more.
func (v *Verdict) judgeFinal(s Seen, probe *corev1.ContainerStatus, now time.Time) {
	until := v.Entry.AvailableUntil
	if until != nil && now.Before(until.Add(-skew)) && !serving(s) {
		v.Entry.AvailableUntil, v.Entry.Files = nil, nil
		if v.Entry.Message == "" {
			v.Entry.Message = "the file is not available any more: the agent's Pod ended before its retention did"
		}
	}
	running := probe == nil || probe.State.Terminated == nil
	v.DeleteJob = s.Job != nil && running && (v.Entry.Phase == sondev1.PhaseFailed || keeperEnd(s) != nil)
}

// judgeAgent: the agent's Pod is there and its probe has not ended.
func (v *Verdict) judgeAgent(s Seen, probe *corev1.ContainerStatus, now time.Time) {
	running := probe != nil && probe.State.Running != nil
	if end := keeperEnd(s); end != nil && running {
		v.keeperLost(s, end)
		return
	}
	if attached(probe) {
		v.Entry.Phase, v.Entry.Reason, v.Entry.Message = sondev1.PhaseCapturing, sondev1.ReasonCapturing, ""
	}
	switch {
	case s.Ending != "" && running:
		v.Stop = true
	case s.Ending != "" && v.Entry.Phase != sondev1.PhaseCapturing:
		v.end(s, s.Ending, "ended before the probe had started")
		v.DeleteJob = true
		return
	}
	if v.Entry.Phase == sondev1.PhaseCapturing {
		v.Again = later(now, overdue(s, probe, now))
		return
	}
	v.pending(sondev1.ReasonPending, "")
	if v.Again = born(s).Add(StartTimeout); !now.Before(v.Again) {
		v.end(s, sondev1.ReasonNotStarted, "the agent's Pod did not start within "+StartTimeout.String()+": "+waiting(s.Agent))
		v.DeleteJob = true
	}
}

// keeperLost: without its keeper, a probe can neither be told to end nor its file be fetched.
func (v *Verdict) keeperLost(s Seen, t *corev1.ContainerStateTerminated) {
	reason := sondev1.ReasonKilled
	if t.ExitCode == agentjob.KeeperFailed {
		reason = sondev1.ReasonProbeError
	}
	v.end(s, reason, fmt.Sprintf("the keeper of the file ended with exit code %d, and the file is lost: %s", t.ExitCode, t.Message))
	v.DeleteJob = true
}

// judgeWithoutAgent: there is no Pod of the agent; no longer, or not yet.
func (v *Verdict) judgeWithoutAgent(s Seen, now time.Time) {
	switch {
	case s.Before.Phase == sondev1.PhaseCapturing, s.Before.Job != "" && s.Job == nil:
		v.judgeVanished(s)
	case failedBy(s.Job) != "" && s.Node == NodeLost:
		v.nodeGone(s)
	case failedBy(s.Job) != "":
		v.end(s, jobReason(failedBy(s.Job)), "the Job failed before its Pod had started: "+failure(s.Job))
	case s.Ending != "":
		v.end(s, s.Ending, "ended before the probe had started")
		v.DeleteJob = s.Job != nil
	case s.Job == nil:
		v.pending(s.Before.Reason, s.Before.Message)
	default:
		v.judgeJob(s, now)
	}
}

// judgeJob: the Job has made no Pod yet.
func (v *Verdict) judgeJob(s Seen, now time.Time) {
	refused := s.Refusal != "" || s.Before.Reason == sondev1.ReasonJobRefused
	reason, message := sondev1.ReasonPending, ""
	if refused {
		reason, message = sondev1.ReasonJobRefused, s.Before.Message
	}
	if s.Refusal != "" {
		message = Refused(s.Refusal, s.Job.Namespace)
	}
	giveUp := born(s).Add(StartTimeout)
	switch {
	case now.Before(born(s).Add(RefusedAfter)):
		v.Again = born(s).Add(RefusedAfter)
	case now.Before(giveUp) && refused:
		v.Again = giveUp
	case now.Before(giveUp):
		v.Again = now.Add(RefusedAfter) // its event may still come
	case refused:
		v.end(s, reason, message)
		v.DeleteJob = true
		return
	default:
		v.end(s, sondev1.ReasonNotStarted, "the Job made no Pod within "+StartTimeout.String())
		v.DeleteJob = true
		return
	}
	v.pending(reason, message)
}

// judgeVanished: the agent's Pod, or its Job, was there and is gone, and its account with it.
func (v *Verdict) judgeVanished(s Seen) {
	switch {
	case cutOff(s.Ending):
		v.end(s, s.Ending, "ended with its Job; its account is lost")
	case s.Node == NodeLost:
		v.nodeGone(s)
	case failedBy(s.Job) == batchv1.JobReasonDeadlineExceeded:
		v.end(s, sondev1.ReasonDeadlineExceeded, failure(s.Job))
	case s.Ending != "" && s.Before.Phase != sondev1.PhaseCapturing:
		v.end(s, s.Ending, "ended before the probe had started")
	default:
		v.end(s, sondev1.ReasonDrained, "the agent's Pod was deleted, and its account with it")
	}
}

// judgePodEnded: the agent's Pod ended without a word of its probe, as when a node refuses it.
func (v *Verdict) judgePodEnded(s Seen) {
	said := s.Agent.Status.Reason + ": " + s.Agent.Status.Message
	switch {
	case s.Agent.Status.Reason == podEvicted:
		v.end(s, sondev1.ReasonEvicted, said)
	case s.Node == NodeLost:
		v.nodeGone(s)
	case s.Before.Phase != sondev1.PhaseCapturing:
		v.end(s, sondev1.ReasonNotStarted, said)
	default:
		v.end(s, sondev1.ReasonDrained, said) // as by a node that shuts down
	}
}

// attached reports whether the probe runs and every packet is counted.
func attached(probe *corev1.ContainerStatus) bool {
	return probe != nil && probe.State.Running != nil && probe.Started != nil && *probe.Started
}

func (v *Verdict) nodeGone(s Seen) {
	v.end(s, sondev1.ReasonNodeLost, "node "+v.Entry.Node+" is gone, and the agent's Pod with it")
}

// end makes the entry final without an account: there may be, or have been, a file if the probe was attached.
func (v *Verdict) end(s Seen, reason, message string) {
	v.Entry.Phase = sondev1.PhaseFailed
	if s.Before.Phase == sondev1.PhaseCapturing || attached(container(s.Agent, captureconfig.ContainerProbe)) {
		v.Entry.Phase = sondev1.PhaseIncomplete
	}
	v.Entry.Reason, v.Entry.Message, v.Again = reason, message, time.Time{}
}

func (v *Verdict) pending(reason, message string) {
	if reason == "" {
		reason = sondev1.ReasonPending
	}
	v.Entry.Phase, v.Entry.Reason, v.Entry.Message = sondev1.PhasePending, reason, message
}
