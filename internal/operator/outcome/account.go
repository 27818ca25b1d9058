package outcome

import (
	"fmt"
	"math"
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

// podEvicted is the reason that kubelet gives an evicted Pod (pkg/kubelet/eviction).
const podEvicted = "Evicted"

// otherPlace stands for places, where events were lost, whose names cannot be shown.
const otherPlace = "other"

// exitKilled is 128 + SIGKILL.
const exitKilled = 137

// judgeEnded: the probe ended; its termination message holds its account, unless it had no time.
func (v *Verdict) judgeEnded(s Seen, t *corev1.ContainerStateTerminated, now time.Time) {
	if v.awaitCount(s, t, now) {
		return
	}
	acc, err := s.account(t)
	v.Ended = endOf(s, t, acc, now)
	if err != nil {
		v.end(s, unwhole(s, t, ""), fmt.Sprintf("the probe ended with exit code %d and left no account: %s", t.ExitCode, text.OneLine(t.Message, 200)))
		v.explain(s, t, acc)
		return
	}
	v.count(acc)
	v.Entry.Message = acc.Message
	// What the probe says of itself is better than what was seen of it: a kubelet that has just been started takes a probe
	// for attached for a moment.
	attached := s.Before.Phase == sondev1.PhaseCapturing && acc.State != account.StateDone || acc.State == account.StateCapturing || !acc.Started.IsZero() || acc.Packets+acc.Events > 0
	switch {
	case acc.Complete && acc.State == account.StateDone && acc.AddsUp() && !cutOff(acc.Reason):
		v.Entry.Phase, v.Entry.Reason = sondev1.PhaseCompleted, word(acc.Reason, sondev1.ReasonDuration)
	case acc.Complete && !acc.AddsUp():
		v.Entry.Phase, v.Entry.Reason = sondev1.PhaseIncomplete, sondev1.ReasonProbeError
		v.Entry.Message = fmt.Sprintf("the account does not add up: %d seen, %d in files, %d overwritten, %d dropped",
			acc.Seen, acc.Packets+acc.Events, acc.Overwritten, acc.Dropped()+acc.LostEvents())
	case attached:
		v.Entry.Phase, v.Entry.Reason = sondev1.PhaseIncomplete, unwhole(s, t, acc.Reason)
		v.explain(s, t, acc)
	default:
		v.Entry.Phase, v.Entry.Reason = sondev1.PhaseFailed, unwhole(s, t, acc.Reason)
		v.explain(s, t, acc)
	}
	v.offer(s, acc.Files)
}

// endOf is when the probe ended, by our clock. The node's own time is taken where it can be true: not to come yet, and
// not before the agent's Pod had been there for as long as the capture lasted. Else the node's clock is wrong, and the
// end was just before it was seen; by the node's time a file would be removed before its retention is over, or be
// promised for longer.
func endOf(s Seen, t *corev1.ContainerStateTerminated, acc account.Account, now time.Time) time.Time {
	at, lasted := t.FinishedAt.Time, max(0, acc.Ended.Sub(acc.Started))
	if at.After(now) || at.Before(s.Agent.CreationTimestamp.Add(lasted-skew)) {
		return now
	}
	return at
}

// account of a probe that has ended: its own, or that which its keeper made for it.
func (s Seen) account(t *corev1.ContainerStateTerminated) (account.Account, error) {
	if s.Recounted != nil {
		return *s.Recounted, nil
	}
	return account.Parse([]byte(t.Message))
}

// awaitCount leaves the entry as it is while the keeper of a killed probe may still say what its files hold.
func (v *Verdict) awaitCount(s Seen, t *corev1.ContainerStateTerminated, now time.Time) bool {
	wait := t.FinishedAt.Add(recountWait)
	ahead := t.FinishedAt.After(now.Add(skew)) // the node's clock is wrong, and by it the wait might never be over
	if !s.Uncounted || ahead || !now.Before(wait) {
		return false
	}
	if v.Entry.Phase == "" {
		v.pending("", "")
	}
	if v.Again = now.Add(recountAgain); v.Again.After(wait) {
		v.Again = wait
	}
	return true
}

// NeedsRecount reports whether the probe left without a last word, so that only its files tell what is in them, and the
// keeper can be asked.
func NeedsRecount(s Seen) bool {
	probe := container(s.Agent, captureconfig.ContainerProbe)
	if s.Before.Phase.Final() || probe == nil || probe.State.Terminated == nil || !serving(s) {
		return false
	}
	return wordless(probe.State.Terminated)
}

// wordless reports whether a probe ended without the last of its accounts.
func wordless(t *corev1.ContainerStateTerminated) bool {
	acc, err := account.Parse([]byte(t.Message))
	return err != nil || acc.State != account.StateDone
}

// count copies the counts of an account.
func (v *Verdict) count(a account.Account) {
	e := &v.Entry
	e.Packets, e.Bytes, e.Truncated, e.Overwritten = a.Packets, a.Bytes, a.Truncated, a.Overwritten
	e.Engine, e.EngineMessage = text.OneLine(a.Engine, account.MaxEngine), text.OneLine(a.EngineMessage, account.MaxText)
	e.Dropped = sondev1.Dropped{Kernel: a.DroppedKernel, Ring: a.DroppedRing, Writer: a.DroppedWriter}
	e.Events, e.Lost = a.Events, lost(a.Lost)
}

// lost events by place. The places are a Pod's words: those that are none of ours are one.
func lost(by map[string]int64) map[string]int64 {
	if len(by) == 0 {
		return nil
	}
	places := make(map[string]int64, len(by))
	for place, n := range by {
		place = word(place, otherPlace)
		places[place] += min(n, math.MaxInt64-places[place]) // never below zero, whatever a Pod says
	}
	return places
}

// offer lists the files while there is a keeper that has them.
func (v *Verdict) offer(s Seen, files []account.File) {
	if v.Entry.Phase == sondev1.PhaseFailed {
		return
	}
	if !serving(s) {
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
		until := metav1.NewTime(v.Ended.Add(s.RetainFor))
		v.Entry.AvailableUntil = &until
	}
}

// unwhole is the reason why a result is not whole. What ended the Pod from outside comes first: of
// that the probe knows only that it had to go.
func unwhole(s Seen, t *corev1.ContainerStateTerminated, own string) string {
	killed := t.ExitCode == exitKilled || t.Signal != 0
	switch {
	case s.Agent.Status.Reason == podEvicted:
		return sondev1.ReasonEvicted
	case failedBy(s.Job) == batchv1.JobReasonDeadlineExceeded:
		return sondev1.ReasonDeadlineExceeded
	case cutOff(s.Ending):
		return s.Ending
	case killed && s.Agent.DeletionTimestamp != nil:
		return sondev1.ReasonDrained
	case killed:
		return sondev1.ReasonKilled
	case t.ExitCode == agentjob.ExitUnknown:
		return sondev1.ReasonNodeLost
	default:
		return word(own, sondev1.ReasonProbeError)
	}
}

// cutOff: what ends for this reason did not end as its requester told it to.
func cutOff(reason string) bool {
	return reason == sondev1.ReasonAccessRevoked || reason == sondev1.ReasonPaused
}

// explain adds what Kubernetes knows to a message that the probe did not write.
func (v *Verdict) explain(s Seen, t *corev1.ContainerStateTerminated, acc account.Account) {
	switch {
	case v.Entry.Reason == sondev1.ReasonEvicted && s.Agent.Status.Message != "":
		v.Entry.Message = s.Agent.Status.Message
	case t.Reason == "OOMKilled":
		v.Entry.Message = "the probe was killed at its memory limit (OOMKilled)"
	case t.ExitCode == agentjob.ExitUnknown:
		v.Entry.Message = "node " + v.Entry.Node + " was started again, or its runtime lost the probe"
	case v.Entry.Reason == sondev1.ReasonAccessRevoked:
		v.Entry.Message = "ended because the capture is not admitted any more; its condition Admitted says why"
	case v.Entry.Reason == sondev1.ReasonPaused:
		v.Entry.Message = "ended because a cluster admin paused the operator"
	case v.Entry.Message == "":
		v.Entry.Message = fmt.Sprintf("the probe ended with exit code %d", t.ExitCode)
	case acc.State == account.StateStarting: // its message is what it was at
		v.Entry.Message = fmt.Sprintf("the probe ended with exit code %d; what it said last: %s", t.ExitCode, acc.Message)
	}
}

// word returns s if it has the form of a condition's reason, and else otherwise: it comes from a Pod.
func word(s, otherwise string) string {
	for _, c := range s {
		if c > unicode.MaxASCII || !unicode.IsLetter(c) {
			return otherwise
		}
	}
	if s == "" || len(s) > 64 {
		return otherwise
	}
	return s
}
