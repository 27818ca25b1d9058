// Package outcome judges the capture of one Pod from what the API server says about its Job, its agent's Pod and its node.
// It is pure. A final verdict stays: later passes only remove files that were lost.
package outcome

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Time limits.
const (
	// RefusedAfter is the age at which the events of a Job without a Pod are read.
	RefusedAfter = 30 * time.Second
	// StartTimeout is how long an agent may take to attach.
	StartTimeout = 5 * time.Minute
	// processWait is how long a probe waits for the target's first process.
	processWait = 60 * time.Second
	// endGrace is how long a probe may run past its time before its node is read.
	endGrace = 60 * time.Second
	// recountWait is how long the keeper of a killed probe may take to count its files, recountAgain the pause between calls.
	recountWait, recountAgain = 30 * time.Second, 2 * time.Second
	// interfacesAgain is the pause between two questions whether a missing interface has appeared.
	interfacesAgain = 10 * time.Second
	// skew is the tolerated difference of the node's clock: a keeper that ends this much too early is on time.
	skew = 5 * time.Second
)

// podEvicted is the reason of a Pod that the kubelet evicted (pkg/kubelet/eviction).
const podEvicted = "Evicted"

// otherPlace replaces the name of a place that is not a plain word.
const otherPlace = "other"

// exitKilled is 128 + SIGKILL.
const exitKilled = 137

// Node is the state of the node of a Pod.
type Node int

// States of a node.
const (
	NodeUnknown Node = iota // not read
	NodeReady
	NodeLost // deleted, or not reporting
)

// Observed is the state of one target Pod, its Job and its node.
type Observed struct {
	// Before is the Pod's entry of the last pass, or one with UID, name and node for a new Pod.
	Before sondev1.PodResult
	// Job and Agent are nil when they do not exist (any more).
	Job   *batchv1.Job
	Agent *corev1.Pod
	Node  Node
	// EndReason says why the operator ends this Pod's capture; empty while the capture continues.
	EndReason string
	// Stop is spec.stop. Gone means that the Pod does not exist, or that its containers have ended for good; Leaving also that it
	// is being deleted.
	Stop, Gone, Leaving Event
	// Recounted is the account of a killed probe with the keeper's own count of the files; nil if the keeper was not asked
	// or cannot count. RecountPending reports that the keeper was asked and did not answer.
	Recounted      *account.Account
	RecountPending bool
	// Interfaces reports that the capture names interfaces. Live is the account of the running probe; nil if the keeper was not
	// asked or did not answer.
	Interfaces bool
	Live       *account.Account
	// Refusal is the API server's message why the Job has no Pod; empty when unknown.
	Refusal string
	// Duration of this Pod's capture, and of the retention of its file after it.
	Duration, RetainFor time.Duration
}

// Verdict is the state of the capture of one Pod and the actions that follow from it.
type Verdict struct {
	Entry sondev1.PodResult
	// Stop reports that the keeper must end the probe, for the reason Observed.EndReason.
	Stop bool
	// DeleteJob reports that the Job is no longer needed.
	DeleteJob bool
	// Again is when the verdict changes by time alone; zero if it does not.
	Again time.Time
	// Ended is when the probe ended; zero if it runs, or if the time is unknown.
	Ended time.Time
	// Interrupted reports that this verdict is the first final one, and that the probe ended without a final account. Its
	// programs may still be attached in the kernel.
	Interrupted bool
}

// Judge returns the verdict at the time now.
func Judge(o Observed, now time.Time) Verdict {
	v := Verdict{Entry: *o.Before.DeepCopy()}
	if o.Job != nil && !o.Before.Phase.Final() {
		v.Entry.Job = o.Job.Name
	}
	probe := container(o.Agent, captureconfig.ContainerProbe)
	switch {
	case o.Before.Phase.Final():
		v.judgeFinal(o, probe, now)
	case probe != nil && probe.State.Terminated != nil:
		v.judgeEnded(o, probe.State.Terminated, now)
	case o.Agent != nil && (o.Agent.Status.Phase == corev1.PodFailed || o.Agent.Status.Phase == corev1.PodSucceeded):
		v.judgePodEnded(o)
	case o.Agent != nil && o.Node == NodeLost:
		v.end(o, sondev1.ReasonNodeLost, "node "+v.Entry.Node+" does not report; its file cannot be fetched")
	case o.Agent != nil:
		v.judgeAgent(o, probe, now)
	default:
		v.judgeWithoutAgent(o, now)
	}
	v.Entry.Message = text.OneLine(v.Entry.Message, 512)
	v.Interrupted = v.Entry.Phase.Final() && o.interrupted(probe)
	return v
}

// interrupted reports whether the probe may have left something in the kernel. On a lost node the kernel is gone or the
// probe ends by itself; so does a running probe whose Job is deleted.
func (o Observed) interrupted(probe *corev1.ContainerStatus) bool {
	switch {
	case o.Before.Phase.Final(), o.Node == NodeLost:
		return false
	case probe != nil && probe.State.Terminated != nil:
		return noFinalAccount(probe.State.Terminated)
	default:
		return o.Before.Phase == sondev1.PhaseCapturing && (probe == nil || probe.State.Running == nil)
	}
}

// judgeFinal keeps a final entry, but removes files that are gone. It deletes a Job that failed, or that lost its keeper.
func (v *Verdict) judgeFinal(o Observed, probe *corev1.ContainerStatus, now time.Time) {
	until := v.Entry.AvailableUntil
	if until != nil && now.Before(until.Add(-skew)) && !serving(o) {
		v.Entry.AvailableUntil, v.Entry.Files = nil, nil
		if v.Entry.Message == "" {
			v.Entry.Message = "the file is no longer available: the agent's Pod ended before the retention time was over"
		}
	}
	running := probe == nil || probe.State.Terminated == nil
	v.DeleteJob = o.Job != nil && running && (v.Entry.Phase == sondev1.PhaseFailed || keeperEnd(o) != nil)
}

// judgeAgent judges a Pod of the agent whose probe has not ended.
func (v *Verdict) judgeAgent(o Observed, probe *corev1.ContainerStatus, now time.Time) {
	running := probe != nil && probe.State.Running != nil
	if end := keeperEnd(o); end != nil && running {
		v.keeperLost(o, end)
		return
	}
	if attached(probe) {
		v.Entry.Phase, v.Entry.Reason, v.Entry.Message = sondev1.PhaseCapturing, sondev1.ReasonCapturing, ""
		v.judgeInterfaces(o, now)
	}
	switch {
	case o.EndReason != "" && running:
		v.Stop = true
	case o.EndReason != "" && v.Entry.Phase != sondev1.PhaseCapturing:
		v.end(o, o.EndReason, "ended before the probe had started")
		v.DeleteJob = true
		return
	}
	if v.Entry.Phase == sondev1.PhaseCapturing {
		end := later(now, overdue(o, probe, now))
		if v.Again.IsZero() || end.Before(v.Again) {
			v.Again = end
		}
		return
	}
	v.pending(sondev1.ReasonPending, startProblem(o.Agent))
	if v.Again = jobCreated(o).Add(StartTimeout); !now.Before(v.Again) {
		v.end(o, sondev1.ReasonNotStarted, "the agent's Pod did not start within "+StartTimeout.String()+": "+waitingReason(o.Agent))
		v.DeleteJob = true
	}
}

// judgeInterfaces says in the entry of an attached probe which interfaces it awaits.
func (v *Verdict) judgeInterfaces(o Observed, now time.Time) {
	switch {
	case !NeedsInterfaces(o):
	case o.Live == nil:
		v.Entry.Reason, v.Entry.Message = sondev1.ReasonInterfaceUnknown, "the keeper does not say whether the Pod has spec.interfaces"
		v.Again = now.Add(interfacesAgain)
	case o.Live.Reason == account.ReasonInterfaceNotFound:
		v.Entry.Reason, v.Entry.Message = sondev1.ReasonInterfaceNotFound, o.Live.Message
		v.Again = now.Add(interfacesAgain)
	}
}

// NeedsInterfaces reports whether the keeper must be asked for the account of a running probe: the capture names interfaces, and
// it is not known that they exist.
func NeedsInterfaces(o Observed) bool {
	known := o.Before.Phase == sondev1.PhaseCapturing && o.Before.Reason == sondev1.ReasonCapturing
	return o.Interfaces && !o.Before.Phase.Final() && !known && attached(container(o.Agent, captureconfig.ContainerProbe))
}

// keeperLost ends a capture without its keeper: nothing else can stop the probe or serve the file.
func (v *Verdict) keeperLost(o Observed, t *corev1.ContainerStateTerminated) {
	reason := sondev1.ReasonKilled
	if t.ExitCode == agentjob.KeeperFailed {
		reason = sondev1.ReasonProbeError
	}
	v.end(o, reason, fmt.Sprintf("the keeper of the file ended with exit code %d, and the file is lost: %s", t.ExitCode, t.Message))
	v.DeleteJob = true
}

// judgeWithoutAgent judges while the agent has no Pod yet, or no longer.
func (v *Verdict) judgeWithoutAgent(o Observed, now time.Time) {
	switch {
	case o.Before.Phase == sondev1.PhaseCapturing, o.Before.Job != "" && o.Job == nil:
		v.judgeVanished(o)
	case failureReason(o.Job) != "" && o.Node == NodeLost:
		v.nodeGone(o)
	case failureReason(o.Job) != "":
		v.end(o, jobReason(failureReason(o.Job)), "the Job failed before its Pod had started: "+failureText(o.Job))
	case o.EndReason != "":
		v.end(o, o.EndReason, "ended before the probe had started")
		v.DeleteJob = o.Job != nil
	case o.Job == nil:
		v.pending(o.Before.Reason, o.Before.Message)
	default:
		v.judgeJob(o, now)
	}
}

// judgeJob judges a Job that has created no Pod yet.
func (v *Verdict) judgeJob(o Observed, now time.Time) {
	refused := o.Refusal != "" || o.Before.Reason == sondev1.ReasonJobRefused
	reason, message := sondev1.ReasonPending, ""
	if refused {
		reason, message = sondev1.ReasonJobRefused, o.Before.Message
	}
	if o.Refusal != "" {
		message = Refused(o.Refusal, o.Job.Namespace)
	}
	giveUp := jobCreated(o).Add(StartTimeout)
	switch {
	case now.Before(jobCreated(o).Add(RefusedAfter)):
		v.Again = jobCreated(o).Add(RefusedAfter)
	case now.Before(giveUp) && refused:
		v.Again = giveUp
	case now.Before(giveUp):
		v.Again = now.Add(RefusedAfter) // the event may come later
	case refused:
		v.end(o, reason, message)
		v.DeleteJob = true
		return
	default:
		v.end(o, sondev1.ReasonNotStarted, "the Job created no Pod within "+StartTimeout.String())
		v.DeleteJob = true
		return
	}
	v.pending(reason, message)
}

// judgeVanished judges after the agent's Pod or its Job was deleted, and the account with it.
func (v *Verdict) judgeVanished(o Observed) {
	switch {
	case forced(o.EndReason):
		v.end(o, o.EndReason, "ended with its Job; its account is lost")
	case o.Node == NodeLost:
		v.nodeGone(o)
	case failureReason(o.Job) == batchv1.JobReasonDeadlineExceeded:
		v.end(o, sondev1.ReasonDeadlineExceeded, failureText(o.Job))
	case o.EndReason != "" && o.Before.Phase != sondev1.PhaseCapturing:
		v.end(o, o.EndReason, "ended before the probe had started")
	default:
		v.end(o, sondev1.ReasonDrained, "the agent's Pod was deleted, and its account with it")
	}
}

// judgePodEnded judges a Pod of the agent that ended before its probe could, for example because the node refused it.
func (v *Verdict) judgePodEnded(o Observed) {
	message := o.Agent.Status.Reason + ": " + o.Agent.Status.Message
	switch {
	case o.Agent.Status.Reason == podEvicted:
		v.end(o, sondev1.ReasonEvicted, message)
	case o.Node == NodeLost:
		v.nodeGone(o)
	case o.Before.Phase != sondev1.PhaseCapturing:
		v.end(o, sondev1.ReasonNotStarted, message)
	default:
		v.end(o, sondev1.ReasonDrained, message) // for example by a node that shuts down
	}
}

// attached reports whether the probe runs and counts every packet.
func attached(probe *corev1.ContainerStatus) bool {
	return probe != nil && probe.State.Running != nil && probe.Started != nil && *probe.Started
}

func (v *Verdict) nodeGone(o Observed) {
	v.end(o, sondev1.ReasonNodeLost, "node "+v.Entry.Node+" is gone, and the agent's Pod with it")
}

// end makes the entry final without an account. It is Incomplete if the probe was attached, since there may be a file.
func (v *Verdict) end(o Observed, reason, message string) {
	v.Entry.Phase = sondev1.PhaseFailed
	if o.Before.Phase == sondev1.PhaseCapturing || attached(container(o.Agent, captureconfig.ContainerProbe)) {
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

// judgeEnded judges a probe that ended. Its termination message holds its account, unless it was killed.
func (v *Verdict) judgeEnded(o Observed, t *corev1.ContainerStateTerminated, now time.Time) {
	doubt := o.doubt()
	if v.awaitRecount(o, t, now) || doubt == sondev1.ReasonTargetNotGone && v.awaitLeaving(o, t, now) {
		return
	}
	acc, err := o.account(t)
	v.Ended = endTime(o, t, acc, now)
	if err != nil {
		v.end(o, incompleteReason(o, t, ""), fmt.Sprintf("the probe ended with exit code %d and left no account: %s", t.ExitCode, text.OneLine(t.Message, 200)))
		v.explain(o, t, acc)
		return
	}
	v.count(acc)
	v.Entry.Message = acc.Message
	switch {
	case doubt != "":
		v.Entry.Phase, v.Entry.Reason = sondev1.PhaseIncomplete, incompleteReason(o, t, doubt)
		v.explain(o, t, acc)
	case acc.Complete && acc.State == account.StateDone && acc.AddsUp() && !forced(acc.Reason):
		v.Entry.Phase, v.Entry.Reason = PhaseOfDone(&acc), reasonOr(acc.Reason, sondev1.ReasonDuration)
	case acc.Complete && !acc.AddsUp():
		v.Entry.Phase, v.Entry.Reason = sondev1.PhaseIncomplete, sondev1.ReasonProbeError
		v.Entry.Message = fmt.Sprintf("the account does not add up: %d seen, %d in files, %d overwritten, %d dropped",
			acc.Seen, acc.Packets+acc.Events, acc.Overwritten, acc.Dropped()+acc.LostEvents())
	case o.wasAttached(acc):
		v.Entry.Phase, v.Entry.Reason = sondev1.PhaseIncomplete, incompleteReason(o, t, acc.Reason)
		v.explain(o, t, acc)
	default:
		v.Entry.Phase, v.Entry.Reason = sondev1.PhaseFailed, incompleteReason(o, t, acc.Reason)
		v.explain(o, t, acc)
	}
	v.noteUncounted(o, acc)
	v.listFiles(o, acc.Files)
}

// noteUncounted says that nobody has counted the files of a killed probe: the counts are from its last account.
func (v *Verdict) noteUncounted(o Observed, acc account.Account) {
	if o.RecountPending && o.wasAttached(acc) {
		v.Entry.Message += "; the keeper did not count the files in time, so the files may have up to a second more than these counts"
	}
}

// wasAttached reports whether a probe that has ended was attached. Its own state overrides the kubelet's, which briefly shows a
// probe that has just started as attached.
func (o Observed) wasAttached(acc account.Account) bool {
	before := o.Before.Phase == sondev1.PhaseCapturing && acc.State != account.StateDone
	return before || acc.State == account.StateCapturing || !acc.Started.IsZero() || acc.Packets+acc.Events > 0
}

// PhaseOfDone returns the phase of a Pod by the last account of its probe alone. Without an interface, or a part of its time, the file is
// whole, and the result is not.
func PhaseOfDone(a *account.Account) sondev1.Phase {
	if !a.Complete || !a.AddsUp() || forced(a.Reason) || a.Reason == account.ReasonInterfaceNotFound || a.Reason == account.ReasonInterfaceMissed {
		return sondev1.PhaseIncomplete
	}
	return sondev1.PhaseCompleted
}

// endTime is when the probe ended, by the manager's clock. It is the node's time if that is plausible: at most skew after now,
// because a pass reads for some seconds, and not before the agent's Pod could have captured for so long. Otherwise it is now:
// by a wrong clock, a file would be removed too early or promised for too long.
func endTime(o Observed, t *corev1.ContainerStateTerminated, acc account.Account, now time.Time) time.Time {
	at, lasted := t.FinishedAt.Time, max(0, acc.Ended.Sub(acc.Started))
	if at.After(now.Add(skew)) || at.Before(o.Agent.CreationTimestamp.Add(lasted-skew)) {
		return now
	}
	return at
}

// account of a probe that has ended: its own, or the one that its keeper counted. Only the probe knows that the files are
// complete: a keeper that was taken over may claim anything about a killed probe.
func (o Observed) account(t *corev1.ContainerStateTerminated) (account.Account, error) {
	if o.Recounted != nil {
		acc := *o.Recounted
		if acc.Complete = false; acc.State == account.StateDone {
			acc.State, acc.Reason = account.StateCapturing, ""
		}
		return acc, nil
	}
	return account.Parse([]byte(t.Message))
}

// awaitRecount leaves the entry as it is while the keeper of a killed probe may still count the files.
func (v *Verdict) awaitRecount(o Observed, t *corev1.ContainerStateTerminated, now time.Time) bool {
	if !o.RecountPending || !v.await(t, recountWait, now) {
		return false
	}
	v.Again = earlier(now.Add(recountAgain), v.Again)
	return true
}

// await leaves the entry as it is for some time after the end of the probe, and reports whether that lasts.
func (v *Verdict) await(t *corev1.ContainerStateTerminated, wait time.Duration, now time.Time) bool {
	until := t.FinishedAt.Add(wait)
	ahead := t.FinishedAt.After(now.Add(skew)) // the node's clock is wrong, and the wait might never end
	if ahead || !now.Before(until) {
		return false
	}
	if v.Entry.Phase == "" {
		v.pending("", "")
	}
	v.Again = until
	return true
}

// NeedsRecount reports whether the probe ended without a final account, so that its keeper must count the files.
func NeedsRecount(o Observed) bool {
	probe := container(o.Agent, captureconfig.ContainerProbe)
	if o.Before.Phase.Final() || probe == nil || probe.State.Terminated == nil || !serving(o) {
		return false
	}
	return noFinalAccount(probe.State.Terminated)
}

// noFinalAccount reports whether a probe ended without its final account.
func noFinalAccount(t *corev1.ContainerStateTerminated) bool {
	acc, err := account.Parse([]byte(t.Message))
	return err != nil || acc.State != account.StateDone
}

// count copies the counts of an account.
func (v *Verdict) count(a account.Account) {
	e := &v.Entry
	e.Packets, e.Bytes, e.Truncated, e.Overwritten = a.Packets, a.Bytes, a.Truncated, a.Overwritten
	e.Engine, e.EngineMessage = text.OneLine(a.Engine, account.MaxEngine), text.OneLine(a.EngineMessage, account.MaxText)
	e.Dropped = sondev1.Dropped{Kernel: a.DroppedKernel, Ring: a.DroppedRing, Writer: a.DroppedWriter}
	e.Events, e.Lost = a.Events, lostByPlace(a.Lost)
	e.Processes = processCounts(a.Processes)
}

// processCounts copies the counts of packets by their process. As in lostByPlace, a Pod may have made up the names of reasons.
func processCounts(p *account.Processes) *sondev1.ProcessCounts {
	if p == nil {
		return nil
	}
	return &sondev1.ProcessCounts{
		Named: p.Named, None: p.None, Unknown: lostByPlace(p.Unknown), Message: text.OneLine(p.Message, account.MaxText),
	}
}

// lostByPlace copies lost events by place. The names come from a Pod: all that are not plain words become otherPlace.
func lostByPlace(by map[string]int64) map[string]int64 {
	if len(by) == 0 {
		return nil
	}
	places := make(map[string]int64, len(by))
	for place, n := range by {
		place = reasonOr(place, otherPlace)
		places[place] += min(n, math.MaxInt64-places[place]) // saturate: a Pod may report any number
	}
	return places
}

// listFiles adds the files while a keeper serves them.
func (v *Verdict) listFiles(o Observed, files []account.File) {
	if v.Entry.Phase == sondev1.PhaseFailed {
		return
	}
	if !serving(o) {
		if v.Entry.Message == "" {
			v.Entry.Message = "the file is not available: the agent's Pod ended before it could be offered"
		}
		return
	}
	for _, f := range files {
		if f.Name != "" && len(f.Name) <= 255 && !strings.ContainsAny(f.Name, "/\x00") && f.Bytes >= 0 {
			v.Entry.Files = append(v.Entry.Files, sondev1.ResultFile{Name: text.OneLine(f.Name, 255), Bytes: f.Bytes})
		}
	}
	if len(v.Entry.Files) > 0 {
		until := metav1.NewTime(v.Ended.Add(o.RetainFor))
		v.Entry.AvailableUntil = &until
	}
}

// incompleteReason says why a result is not complete. A cause outside the probe comes first, because the probe only knows
// that it was asked to end.
func incompleteReason(o Observed, t *corev1.ContainerStateTerminated, own string) string {
	killed := t.ExitCode == exitKilled || t.Signal != 0
	switch {
	case o.Agent.Status.Reason == podEvicted:
		return sondev1.ReasonEvicted
	case failureReason(o.Job) == batchv1.JobReasonDeadlineExceeded:
		return sondev1.ReasonDeadlineExceeded
	case forced(o.EndReason):
		return o.EndReason
	case killed && o.Agent.DeletionTimestamp != nil:
		return sondev1.ReasonDrained
	case killed:
		return sondev1.ReasonKilled
	case t.ExitCode == agentjob.ExitUnknown:
		return sondev1.ReasonNodeLost
	default:
		return reasonOr(own, sondev1.ReasonProbeError)
	}
}

// forced reports whether a capture that ends for this reason was ended against its requester's will.
func forced(reason string) bool {
	return reason == sondev1.ReasonAccessRevoked || reason == sondev1.ReasonPaused
}

// explain writes a message from what Kubernetes knows, where the probe wrote none.
func (v *Verdict) explain(o Observed, t *corev1.ContainerStateTerminated, acc account.Account) {
	switch {
	case v.Entry.Reason == sondev1.ReasonEvicted && o.Agent.Status.Message != "":
		v.Entry.Message = o.Agent.Status.Message
	case t.Reason == "OOMKilled":
		v.Entry.Message = "the probe was killed at its memory limit (OOMKilled)"
	case t.ExitCode == agentjob.ExitUnknown:
		v.Entry.Message = "node " + v.Entry.Node + " was restarted, or its container runtime lost the probe"
	case v.Entry.Reason == sondev1.ReasonAccessRevoked:
		v.Entry.Message = "ended because the capture is not admitted any more; its condition Admitted says why"
	case v.Entry.Reason == sondev1.ReasonPaused:
		v.Entry.Message = "ended because a cluster admin paused the operator"
	case v.Entry.Reason == sondev1.ReasonStopNotRequested:
		v.Entry.Message = "the keeper ended it with the reason " + acc.Reason + ", which the operator had not asked for: see the logs of the agent's Pod"
	case v.Entry.Reason == sondev1.ReasonTargetNotGone && acc.Complete:
		v.Entry.Message = "the probe found no process of the Pod in the captured network, and the Pod was not being deleted then: " +
			"what it did after that is not in the file. Create another capture"
	case v.Entry.Message == "":
		v.Entry.Message = fmt.Sprintf("the probe ended with exit code %d", t.ExitCode)
	case acc.State == account.StateStarting: // its message says what it was doing
		v.Entry.Message = fmt.Sprintf("the probe ended with exit code %d; its last message: %s", t.ExitCode, acc.Message)
	}
}

// reasonOr returns s, which comes from a Pod, if it has the form of a condition's reason, and fallback if not.
func reasonOr(s, fallback string) string {
	for _, c := range s {
		if c > unicode.MaxASCII || !unicode.IsLetter(c) {
			return fallback
		}
	}
	if s == "" || len(s) > 64 {
		return fallback
	}
	return s
}

// serving reports whether the keeper of an agent's Pod still serves the files.
func serving(o Observed) bool {
	agent := o.Agent
	if agent == nil || agent.DeletionTimestamp != nil || agent.Status.Phase == corev1.PodFailed || agent.Status.Phase == corev1.PodSucceeded {
		return false
	}
	return container(agent, captureconfig.ContainerKeeper) != nil && keeperEnd(o) == nil
}

// keeperEnd is the final state of the keeper; nil while it runs or will be restarted.
func keeperEnd(o Observed) *corev1.ContainerStateTerminated {
	keeper := container(o.Agent, captureconfig.ContainerKeeper)
	if keeper == nil || keeper.State.Terminated == nil {
		return nil
	}
	switch keeper.State.Terminated.ExitCode {
	case 0, agentjob.KeeperFailed, agentjob.ExitUnknown: // the exit codes that internal/agentjob excludes from restarts
	default:
		if restarts(o.Agent) {
			return nil
		}
	}
	return keeper.State.Terminated
}

// restarts reports whether the kubelet restarts the keeper of an agent's Pod. An API server without this feature drops the rule.
func restarts(agent *corev1.Pod) bool {
	return slices.ContainsFunc(agent.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == captureconfig.ContainerKeeper && len(c.RestartPolicyRules) > 0
	})
}

func container(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	if pod == nil {
		return nil
	}
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == name {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// waitingReason says why an agent's Pod has not started.
func waitingReason(agent *corev1.Pod) string {
	if problem := startProblem(agent); problem != "" {
		return problem
	}
	for _, c := range agent.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			return c.Name + ": " + w.Reason + ": " + w.Message
		}
	}
	return "see the Pod " + agent.Namespace + "/" + agent.Name
}

// startProblem says what keeps an agent's Pod from starting; empty while it starts as every Pod does.
func startProblem(agent *corev1.Pod) string {
	for _, c := range agent.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return c.Name + ": " + w.Reason + ": " + w.Message
		}
	}
	for _, c := range agent.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

func failureReason(job *batchv1.Job) string {
	if c := failedCondition(job); c != nil {
		return c.Reason
	}
	return ""
}

func failureText(job *batchv1.Job) string {
	if c := failedCondition(job); c != nil {
		return c.Reason + ": " + c.Message
	}
	return ""
}

func failedCondition(job *batchv1.Job) *batchv1.JobCondition {
	if job == nil {
		return nil
	}
	for i, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// jobReason translates the reason of a failed Job.
func jobReason(job string) string {
	if job == batchv1.JobReasonDeadlineExceeded {
		return sondev1.ReasonDeadlineExceeded
	}
	return sondev1.ReasonNotStarted
}

// NeedsNode reports whether the verdict depends on the state of the node.
func NeedsNode(o Observed, now time.Time) bool {
	probe := container(o.Agent, captureconfig.ContainerProbe)
	switch {
	case o.Before.Phase.Final(), probe != nil && probe.State.Terminated != nil:
		return false
	case o.Agent == nil:
		return o.Before.Phase == sondev1.PhaseCapturing || failureReason(o.Job) != ""
	case o.Agent.Status.Phase == corev1.PodFailed:
		return o.Agent.Status.Reason != podEvicted // Pods of a deleted node fail without it
	default:
		end := overdue(o, probe, now)
		return !end.IsZero() && !now.Before(end)
	}
}

// NeedsEvents reports whether the verdict depends on why the Job has no Pod.
func NeedsEvents(o Observed, now time.Time) bool {
	if o.Before.Reason == sondev1.ReasonJobRefused {
		return false // already read
	}
	return !o.Before.Phase.Final() && o.Job != nil && o.Agent == nil && o.Job.Status.Active == 0 && failureReason(o.Job) == "" &&
		o.Before.Phase != sondev1.PhaseCapturing && !now.Before(jobCreated(o).Add(RefusedAfter))
}

// overdue is the latest time by which the probe should have ended; zero if it does not run. If the node's clock is wrong,
// the creation of the Pod counts as the start of the probe.
func overdue(o Observed, probe *corev1.ContainerStatus, now time.Time) time.Time {
	if probe == nil || probe.State.Running == nil {
		return time.Time{}
	}
	started, created := probe.State.Running.StartedAt.Time, o.Agent.CreationTimestamp.Time
	if started.Before(created) || started.After(now) {
		started = created
	}
	return started.Add(processWait + o.Duration + endGrace)
}

// earlier returns the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// later is t, or endGrace from now if t has passed: the node may still answer.
func later(now, t time.Time) time.Time {
	if now.Before(t) {
		return t
	}
	return now.Add(endGrace)
}

// jobCreated is when the Job was created, or its Pod if the Job is gone.
func jobCreated(o Observed) time.Time {
	if o.Job == nil {
		return o.Agent.CreationTimestamp.Time
	}
	return o.Job.CreationTimestamp.Time
}
