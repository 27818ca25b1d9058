package outcome_test

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

var (
	dawn  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	until = metav1.NewTime(dawn.Add(time.Hour))
)

// got is the part of a verdict that the table compares.
type got struct {
	Phase           sondev1.Phase
	Reason, Message string
	Packets         int64
	Files           int
	Stop, DeleteJob bool
	Again           time.Duration // after dawn; 0 if never
}

func TestJudge(t *testing.T) {
	const uncounted = "the probe ended with exit code 137; the keeper did not count the files in time, so the files may have up to a second more than these counts"
	cases := map[string]struct {
		observed outcome.Observed
		at       time.Duration // after dawn, the creation of the Job
		want     got
	}{
		// Not created, or not started.
		"no Job yet": {
			observed: outcome.Observed{},
			want:     got{Phase: sondev1.PhasePending, Reason: sondev1.ReasonPending},
		},
		"the Job was refused before": {
			observed: outcome.Observed{Before: entry(sondev1.PhasePending, sondev1.ReasonJobRefused, "quota")},
			want:     got{Phase: sondev1.PhasePending, Reason: sondev1.ReasonJobRefused, Message: "quota"},
		},
		"the Job has no Pod yet": {
			observed: outcome.Observed{Job: job()}, at: time.Second,
			want: got{Phase: sondev1.PhasePending, Reason: sondev1.ReasonPending, Again: 30 * time.Second},
		},
		"the Job has no Pod for long, and no event says why": {
			observed: outcome.Observed{Job: job()}, at: 31 * time.Second,
			want: got{Phase: sondev1.PhasePending, Reason: sondev1.ReasonPending, Again: 61 * time.Second},
		},
		"the Job's Pod is refused": {
			observed: outcome.Observed{Job: job(), Refusal: `pods "x" is forbidden`}, at: 31 * time.Second,
			want: got{Phase: sondev1.PhasePending, Reason: sondev1.ReasonJobRefused, Message: outcome.Refused(`pods "x" is forbidden`, "sonde-system"), Again: 5 * time.Minute},
		},
		"the Job's Pod is still refused": {
			observed: outcome.Observed{Job: job(), Before: entry(sondev1.PhasePending, sondev1.ReasonJobRefused, "refused")}, at: time.Minute,
			want: got{Phase: sondev1.PhasePending, Reason: sondev1.ReasonJobRefused, Message: "refused", Again: 5 * time.Minute},
		},
		"the Job's Pod was refused for too long": {
			observed: outcome.Observed{Job: job(), Before: entry(sondev1.PhasePending, sondev1.ReasonJobRefused, "refused")}, at: 5 * time.Minute,
			want: got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonJobRefused, Message: "refused", DeleteJob: true},
		},
		"the Job created no Pod in time": {
			observed: outcome.Observed{Job: job()}, at: 5 * time.Minute,
			want: got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonNotStarted, Message: "the Job created no Pod within 5m0s", DeleteJob: true},
		},
		"the agent is starting": {
			observed: outcome.Observed{Job: job(), Agent: agent(waiting("ContainerCreating", ""))}, at: time.Second,
			want: got{Phase: sondev1.PhasePending, Reason: sondev1.ReasonPending, Again: 5 * time.Minute},
		},
		"the probe runs and is not attached": {
			observed: outcome.Observed{Job: job(), Agent: agent(running(false))}, at: time.Second,
			want: got{Phase: sondev1.PhasePending, Reason: sondev1.ReasonPending, Again: 5 * time.Minute},
		},
		"the agent's image cannot be pulled": {
			observed: outcome.Observed{Job: job(), Agent: agent(waiting("ImagePullBackOff", "no such image"))}, at: time.Second,
			want: got{Phase: sondev1.PhasePending, Reason: sondev1.ReasonPending, Message: "probe: ImagePullBackOff: no such image", Again: 5 * time.Minute},
		},
		"the agent has no node yet": {
			observed: outcome.Observed{Job: job(), Agent: agent(func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no memory"}}
			})}, at: time.Second,
			want: got{Phase: sondev1.PhasePending, Reason: sondev1.ReasonPending, Message: "Unschedulable: no memory", Again: 5 * time.Minute},
		},
		"the agent did not start in time": {
			observed: outcome.Observed{Job: job(), Agent: agent(waiting("ImagePullBackOff", "no such image"))}, at: 5 * time.Minute,
			want: got{
				Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonNotStarted, DeleteJob: true,
				Message: "the agent's Pod did not start within 5m0s: probe: ImagePullBackOff: no such image",
			},
		},
		"the agent was not scheduled in time": {
			observed: outcome.Observed{Job: job(), Agent: agent(func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no memory"}}
			})}, at: 5 * time.Minute,
			want: got{
				Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonNotStarted, DeleteJob: true,
				Message: "the agent's Pod did not start within 5m0s: Unschedulable: no memory",
			},
		},
		"the node refused the agent": {
			observed: outcome.Observed{Job: job(), Agent: agent(func(p *corev1.Pod) {
				p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "OutOfcpu", "too busy"
			})},
			want: got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonNotStarted, Message: "OutOfcpu: too busy"},
		},
		// Running.
		"attached": {
			observed: outcome.Observed{Job: job(), Agent: agent(running(true))}, at: time.Second,
			want: got{Phase: sondev1.PhaseCapturing, Reason: sondev1.ReasonCapturing, Again: 150 * time.Second},
		},
		"attached, and the keeper does not say whether its interfaces exist": {
			observed: outcome.Observed{Job: job(), Agent: agent(running(true)), Interfaces: true}, at: time.Second,
			want: got{Phase: sondev1.PhaseCapturing, Reason: sondev1.ReasonInterfaceUnknown, Message: "the keeper does not say whether the Pod has spec.interfaces", Again: 11 * time.Second},
		},
		"attached, and an interface is missing": {
			observed: outcome.Observed{
				Before: entry(sondev1.PhaseCapturing, sondev1.ReasonInterfaceUnknown, ""), Job: job(), Agent: agent(running(true)), Interfaces: true,
				Live: &account.Account{Reason: account.ReasonInterfaceNotFound, Message: "eth7: no such interface"},
			}, at: time.Second,
			want: got{Phase: sondev1.PhaseCapturing, Reason: sondev1.ReasonInterfaceNotFound, Message: "eth7: no such interface", Again: 11 * time.Second},
		},
		"attached, and the interface has appeared": {
			observed: outcome.Observed{
				Before: entry(sondev1.PhaseCapturing, sondev1.ReasonInterfaceNotFound, "eth7"), Job: job(), Agent: agent(running(true)), Interfaces: true,
				Live: &account.Account{},
			}, at: time.Second,
			want: got{Phase: sondev1.PhaseCapturing, Reason: sondev1.ReasonCapturing, Again: 150 * time.Second},
		},
		"overdue, and the node answers": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(running(true)), Node: outcome.NodeReady}, at: 151 * time.Second,
			want: got{Phase: sondev1.PhaseCapturing, Reason: sondev1.ReasonCapturing, Again: 211 * time.Second},
		},
		"overdue, and the node is lost": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(running(true)), Node: outcome.NodeLost}, at: 151 * time.Second,
			want: got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonNodeLost, Message: "node node-a does not report; its file cannot be fetched"},
		},
		"its node is lost, and the probe was never attached": {
			observed: outcome.Observed{Job: job(), Agent: agent(running(true)), Node: outcome.NodeLost}, at: 151 * time.Second,
			want: got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonNodeLost, Message: "node node-a does not report; its file cannot be fetched"},
		},
		// To be ended.
		"to be ended, and running": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(running(true)), EndReason: sondev1.ReasonStopped}, at: time.Second,
			want: got{Phase: sondev1.PhaseCapturing, Reason: sondev1.ReasonCapturing, Stop: true, Again: 150 * time.Second},
		},
		"to be ended, and running but not attached": {
			observed: outcome.Observed{Job: job(), Agent: agent(running(false)), EndReason: sondev1.ReasonStopped}, at: time.Second,
			want: got{Phase: sondev1.PhasePending, Reason: sondev1.ReasonPending, Stop: true, Again: 5 * time.Minute},
		},
		"to be ended, and not started": {
			observed: outcome.Observed{Job: job(), Agent: agent(waiting("", "")), EndReason: sondev1.ReasonStopped}, at: time.Second,
			want: got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonStopped, Message: "ended before the probe had started", DeleteJob: true},
		},
		"to be ended, and without a Pod": {
			observed: outcome.Observed{Job: job(), EndReason: sondev1.ReasonTargetGone}, at: time.Second,
			want: got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonTargetGone, Message: "ended before the probe had started", DeleteJob: true},
		},
		"to be ended, and without a Job": {
			observed: outcome.Observed{EndReason: sondev1.ReasonAccessRevoked},
			want:     got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonAccessRevoked, Message: "ended before the probe had started"},
		},
		// Ended with an account.
		"complete": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(complete(), 0))},
			want:     got{Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonDuration, Packets: 10, Files: 1},
		},
		"complete, and never observed attached": {
			observed: outcome.Observed{Job: job(), Agent: agent(ended(complete(), 0))},
			want:     got{Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonDuration, Packets: 10, Files: 1},
		},
		"complete, but it does not add up": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(func() account.Account { a := complete(); a.Seen++; return a }(), 0))},
			want: got{
				Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonProbeError, Packets: 10, Files: 1,
				Message: "the account does not add up: 11 seen, 10 in files, 0 overwritten, 0 dropped",
			},
		},
		"complete, but ended because the right was lost": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(func() account.Account { a := complete(); a.Reason = "AccessRevoked"; return a }(), 0))},
			want: got{
				Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonAccessRevoked, Packets: 10, Files: 1,
				Message: "ended because the capture is not admitted any more; its condition Admitted says why",
			},
		},
		"the disk was full": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("DiskFull", "no space"), 3))},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonDiskFull, Message: "no space", Packets: 5, Files: 1},
		},
		"killed": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("", ""), 137))},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled, Message: "the probe ended with exit code 137", Packets: 5, Files: 1},
		},
		"killed before it was attached": {
			observed: outcome.Observed{Job: job(), Agent: agent(raw(`{"v":1,"state":"starting","message":"waiting"}`, 137))},
			want:     got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonKilled, Message: "the probe ended with exit code 137; its last message: waiting"},
		},
		"killed at its memory limit": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("", ""), 137), func(p *corev1.Pod) { probe(p).State.Terminated.Reason = "OOMKilled" })},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled, Message: "the probe was killed at its memory limit (OOMKilled)", Packets: 5, Files: 1},
		},
		"killed, and its file was counted": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("", ""), 137)), Recounted: new(recounted())},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled, Message: "the probe ended with exit code 137", Packets: 7, Files: 1},
		},
		"killed, and its keeper claims that the result is complete": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("", ""), 137)), Recounted: new(complete())},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled, Message: "the probe ended with exit code 137", Packets: 10, Files: 1},
		},
		"killed before its first account, and its file was counted": {
			observed: outcome.Observed{Job: job(), Agent: agent(raw("", 137)), Recounted: new(recounted())},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled, Message: "the probe ended with exit code 137", Packets: 7, Files: 1},
		},
		"killed, and the keeper has not answered yet": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("", ""), 137)), RecountPending: true}, at: time.Second,
			want: got{Phase: sondev1.PhaseCapturing, Reason: sondev1.ReasonCapturing, Again: 3 * time.Second},
		},
		"killed at once, and the keeper has not answered yet": {
			observed: outcome.Observed{Job: job(), Agent: agent(raw("", 137)), RecountPending: true}, at: 29 * time.Second,
			want: got{Phase: sondev1.PhasePending, Reason: sondev1.ReasonPending, Again: 30 * time.Second},
		},
		"killed, and the keeper never answered": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("", ""), 137)), RecountPending: true}, at: 30 * time.Second,
			want: got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled, Message: uncounted, Packets: 5, Files: 1},
		},
		"the node was restarted": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("", ""), 255), restarting, keeperEnded(255))},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonNodeLost, Message: "node node-a was restarted, or its container runtime lost the probe", Packets: 5},
		},
		// The keeper ended.
		"killed, and its keeper is restarted": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("", ""), 137), restarting, keeperEnded(137))},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled, Message: "the probe ended with exit code 137", Packets: 5, Files: 1},
		},
		"the keeper is restarted": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(running(true), restarting, keeperEnded(137))}, at: time.Second,
			want: got{Phase: sondev1.PhaseCapturing, Reason: sondev1.ReasonCapturing, Again: 150 * time.Second},
		},
		"the keeper was lost, and the verdict is published": {
			observed: outcome.Observed{
				Before: entry(sondev1.PhaseIncomplete, sondev1.ReasonKilled, "m"), Job: job(), Agent: agent(running(true), keeperEnded(137)),
			},
			want: got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled, Message: "m", DeleteJob: true},
		},
		"killed on a node whose clock is ahead, and the keeper never answered": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("", ""), 137)), RecountPending: true}, at: -time.Hour,
			want: got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled, Message: uncounted, Packets: 5, Files: 1},
		},
		"the keeper was killed, and is not restarted": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(running(true), keeperEnded(137))},
			want: got{
				Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled, DeleteJob: true,
				Message: "the keeper of the file ended with exit code 137, and the file is lost: words",
			},
		},
		"the keeper refuses to serve": {
			observed: outcome.Observed{Job: job(), Agent: agent(running(false), restarting, keeperEnded(1))},
			want: got{
				Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonProbeError, DeleteJob: true,
				Message: "the keeper of the file ended with exit code 1, and the file is lost: words",
			},
		},
		"complete, and the keeper was killed": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(complete(), 0), keeperEnded(137))},
			want:     got{Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonDuration, Packets: 10, Message: "the file is not available: the agent's Pod ended before it could be offered"},
		},
		"never attached, although the kubelet says so": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(account.Account{State: account.StateDone, Reason: "Stopped", Message: "too early"}, 4))},
			want:     got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonStopped, Message: "too early"},
		},
		"final, and the keeper is restarted": {
			observed: outcome.Observed{Before: completed(), Job: job(), Agent: agent(ended(complete(), 0), restarting, keeperEnded(137))},
			want:     got{Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonDuration, Packets: 10, Files: 1},
		},
		"drained": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("Drained", "told to end"), 3), deleting)},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonDrained, Message: "told to end", Packets: 5},
		},
		"drained, and too slow": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("", ""), 137), deleting)},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonDrained, Message: "the probe ended with exit code 137", Packets: 5},
		},
		"evicted": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(incomplete("Drained", "told to end"), 3), func(p *corev1.Pod) {
				p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "the node had no disk left"
			})},
			want: got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonEvicted, Message: "the node had no disk left", Packets: 5},
		},
		"the Job's deadline passed": {
			observed: outcome.Observed{Before: capturing(), Job: failed("DeadlineExceeded"), Agent: agent(ended(incomplete("Drained", "told to end"), 3), deleting)},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonDeadlineExceeded, Message: "told to end", Packets: 5},
		},
		"failed before it was attached": {
			observed: outcome.Observed{Job: job(), Agent: agent(ended(account.Account{State: account.StateDone, Reason: "ProbeError", Message: "no process"}, 4))},
			want:     got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonProbeError, Message: "no process"},
		},
		// Ended without an account.
		"no account": {
			observed: outcome.Observed{Job: job(), Agent: agent(raw("exec format error\x1b[31m", 1))},
			want:     got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonProbeError, Message: "the probe ended with exit code 1 and left no account: exec format error [31m"},
		},
		"no account, killed while capturing": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(raw("", 137))},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled, Message: "the probe ended with exit code 137 and left no account:"},
		},
		"ended by Kubernetes because its node was removed": {
			observed: outcome.Observed{Before: capturing(), Job: failed("BackoffLimitExceeded"), Node: outcome.NodeLost, Agent: agent(running(true), func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodFailed
			})},
			want: got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonNodeLost, Message: "node node-a is gone, and the agent's Pod with it"},
		},
		"not started when its node was removed": {
			observed: outcome.Observed{Before: withJob(entry(sondev1.PhasePending, sondev1.ReasonPending, "")), Job: failed("BackoffLimitExceeded"), Node: outcome.NodeLost},
			want:     got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonNodeLost, Message: "node node-a is gone, and the agent's Pod with it"},
		},
		"evicted without a message": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(running(true), func(p *corev1.Pod) {
				p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "no disk"
			})},
			want: got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonEvicted, Message: "Evicted: no disk"},
		},
		// The Pod or the Job is gone.
		"the agent's Pod is gone": {
			observed: outcome.Observed{Before: capturing(), Job: failed("BackoffLimitExceeded"), Node: outcome.NodeReady},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonDrained, Message: "the agent's Pod was deleted, and its account with it"},
		},
		"the agent's Pod is gone with its node": {
			observed: outcome.Observed{Before: capturing(), Job: job(), Node: outcome.NodeLost},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonNodeLost, Message: "node node-a is gone, and the agent's Pod with it"},
		},
		"the agent's Pod is gone at the deadline": {
			observed: outcome.Observed{Before: capturing(), Job: failed("DeadlineExceeded")},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonDeadlineExceeded, Message: "DeadlineExceeded: words"},
		},
		"the Job is gone": {
			observed: outcome.Observed{Before: withJob(entry(sondev1.PhasePending, sondev1.ReasonPending, ""))},
			want:     got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonDrained, Message: "the agent's Pod was deleted, and its account with it"},
		},
		"the Job is gone, because the right was lost": {
			observed: outcome.Observed{Before: withJob(capturing()), EndReason: sondev1.ReasonAccessRevoked},
			want:     got{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonAccessRevoked, Message: "ended with its Job; its account is lost"},
		},
		"the Job is gone, because it was stopped before it started": {
			observed: outcome.Observed{Before: withJob(entry(sondev1.PhasePending, "", "")), EndReason: sondev1.ReasonStopped},
			want:     got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonStopped, Message: "ended before the probe had started"},
		},
		"the Job failed before its Pod was observed": {
			observed: outcome.Observed{Job: failed("DeadlineExceeded")},
			want:     got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonDeadlineExceeded, Message: "the Job failed before its Pod had started: DeadlineExceeded: words"},
		},
		// Final.
		"final, and the file is available": {
			observed: outcome.Observed{Before: completed(), Job: job(), Agent: agent(ended(complete(), 0))},
			want:     got{Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonDuration, Packets: 10, Files: 1},
		},
		"final, and later events change nothing": {
			observed: outcome.Observed{Before: completed(), Job: failed("DeadlineExceeded"), Agent: agent(ended(incomplete("DiskFull", "x"), 3)), Node: outcome.NodeLost, EndReason: sondev1.ReasonAccessRevoked},
			want:     got{Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonDuration, Packets: 10, Files: 1},
		},
		"final, and the file is gone before its retention ends": {
			observed: outcome.Observed{Before: completed()},
			want:     got{Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonDuration, Packets: 10, Message: "the file is no longer available: the agent's Pod ended before the retention time was over"},
		},
		"final, and the retention is over": {
			observed: outcome.Observed{Before: completed()}, at: time.Hour,
			want: got{Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonDuration, Packets: 10, Files: 1},
		},
		"final without a result, and its Job could not be deleted": {
			observed: outcome.Observed{Before: entry(sondev1.PhaseFailed, sondev1.ReasonNotStarted, "late"), Job: job(), Agent: agent(running(true))},
			want:     got{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonNotStarted, Message: "late", DeleteJob: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.observed.Duration, tc.observed.RetainFor = 30*time.Second, time.Hour
			tc.observed.Before.UID, tc.observed.Before.Name, tc.observed.Before.Node = "u", "web-1", "node-a"
			v := outcome.Judge(tc.observed, dawn.Add(tc.at))
			g := got{
				Phase: v.Entry.Phase, Reason: v.Entry.Reason, Message: v.Entry.Message, Packets: v.Entry.Packets, Files: len(v.Entry.Files),
				Stop: v.Stop, DeleteJob: v.DeleteJob,
			}
			if !v.Again.IsZero() {
				g.Again = v.Again.Sub(dawn)
			}
			if diff := cmp.Diff(tc.want, g); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			if (len(v.Entry.Files) > 0) != (v.Entry.AvailableUntil != nil) {
				t.Errorf("files %v are available until %v", v.Entry.Files, v.Entry.AvailableUntil)
			}
			// A final verdict is the last one.
			if v.Entry.Phase.Final() {
				tc.observed.Before = v.Entry
				if again := outcome.Judge(tc.observed, dawn.Add(tc.at)); cmp.Diff(v.Entry, again.Entry) != "" {
					t.Errorf("the second verdict differs:\n%s", cmp.Diff(v.Entry, again.Entry))
				}
			}
		})
	}
}

// TestJudgeTrace checks that the entry has the trace's events, and the lost ones by place, for every end.
func TestJudgeTrace(t *testing.T) {
	type counts struct {
		Phase           sondev1.Phase
		Reason, Message string
		Events          int64
		Lost            map[string]int64
	}
	both := map[string]int64{"ring": 3, "writer": 1}
	for name, tc := range map[string]struct {
		account account.Account
		exit    int32
		want    counts
	}{
		"complete": {account: traced(10, nil), want: counts{Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonEventLimit, Events: 10}},
		"with lost events": {
			account: traced(10, both), want: counts{Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonEventLimit, Events: 10, Lost: both},
		},
		"it does not add up": {
			account: func() account.Account { a := traced(10, both); a.Seen++; return a }(),
			want: counts{
				Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonProbeError, Events: 10, Lost: both,
				Message: "the account does not add up: 15 seen, 10 in files, 0 overwritten, 4 dropped",
			},
		},
		"killed in the middle": {
			account: func() account.Account {
				a := traced(10, both)
				a.State, a.Complete, a.Reason = account.StateCapturing, false, ""
				return a
			}(),
			exit: 137,
			want: counts{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled, Events: 10, Lost: both, Message: "the probe ended with exit code 137"},
		},
		"attached, by its events alone": {
			account: account.Account{State: account.StateDone, Reason: sondev1.ReasonProbeError, Message: "no more", Counts: account.Counts{Seen: 2}, Events: 2},
			exit:    3,
			want:    counts{Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonProbeError, Events: 2, Message: "no more"},
		},
		// A Pod may write any place.
		"invalid places": {
			account: traced(1, map[string]int64{"ring": 1, "../../etc": 2, "\x1b[2J": 3}),
			want:    counts{Phase: sondev1.PhaseCompleted, Reason: sondev1.ReasonEventLimit, Events: 1, Lost: map[string]int64{"ring": 1, "other": 5}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := outcome.Judge(outcome.Observed{Job: job(), Agent: agent(ended(tc.account, tc.exit)), RetainFor: time.Hour}, dawn).Entry
			if diff := cmp.Diff(tc.want, counts{Phase: e.Phase, Reason: e.Reason, Message: e.Message, Events: e.Events, Lost: e.Lost}); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
			if e.Packets != 0 || len(e.Files) != len(tc.account.Files) {
				t.Errorf("%d packets, files %v of %v", e.Packets, e.Files, tc.account.Files)
			}
		})
	}
}

func TestEngineIsShown(t *testing.T) {
	a := complete()
	a.Engine, a.EngineMessage = "afpacket", "no tcx:\x1b[2J operation not permitted"
	e := outcome.Judge(outcome.Observed{Job: job(), Agent: agent(ended(a, 0))}, dawn).Entry
	if e.Engine != "afpacket" || e.EngineMessage != "no tcx: [2J operation not permitted" {
		t.Errorf("engine %q, %q", e.Engine, e.EngineMessage)
	}
}

func TestProcessesAreShown(t *testing.T) {
	a := complete()
	a.Processes = &account.Processes{Named: 7, None: 2, Unknown: map[string]int64{"forked": 1, "a\nb": 1}, Message: "not\x1bhere"}
	e := outcome.Judge(outcome.Observed{Job: job(), Agent: agent(ended(a, 0))}, dawn).Entry
	want := &sondev1.ProcessCounts{Named: 7, None: 2, Unknown: map[string]int64{"forked": 1, "other": 1}, Message: "not here"}
	if diff := cmp.Diff(want, e.Processes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// traced is the account of a trace that has ended.
func traced(events int64, lost map[string]int64) account.Account {
	a := account.Account{
		State: account.StateDone, Engine: "tracepoints", Reason: sondev1.ReasonEventLimit, Complete: true, Started: dawn, Ended: dawn,
		Events: events, Lost: lost, Files: []account.File{{Name: "web.ndjson", Bytes: 100}},
	}
	a.Seen = events + a.LostEvents()
	return a
}

func TestNeeds(t *testing.T) {
	cases := map[string]struct {
		observed             outcome.Observed
		at                   time.Duration
		wantNode, wantEvents bool
	}{
		"running":                         {observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(running(true))}, at: time.Minute},
		"overdue":                         {observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(running(true))}, at: 150 * time.Second, wantNode: true},
		"ended":                           {observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(complete(), 0))}, at: time.Hour},
		"gone":                            {observed: outcome.Observed{Before: capturing(), Job: job()}, at: time.Minute, wantNode: true},
		"final":                           {observed: outcome.Observed{Before: completed(), Job: job()}, at: time.Minute},
		"the Job is young":                {observed: outcome.Observed{Job: job()}, at: time.Second},
		"the Job has no Pod for long":     {observed: outcome.Observed{Job: job()}, at: time.Minute, wantEvents: true},
		"the Job's Pod is on its way":     {observed: outcome.Observed{Job: func() *batchv1.Job { j := job(); j.Status.Active = 1; return j }()}, at: time.Minute},
		"why the Job has no Pod is known": {observed: outcome.Observed{Job: job(), Before: entry(sondev1.PhasePending, sondev1.ReasonJobRefused, "x")}, at: time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.observed.Duration = 30 * time.Second
			if got := outcome.NeedsNode(tc.observed, dawn.Add(tc.at)); got != tc.wantNode {
				t.Errorf("NeedsNode = %v, want %v", got, tc.wantNode)
			}
			if got := outcome.NeedsEvents(tc.observed, dawn.Add(tc.at)); got != tc.wantEvents {
				t.Errorf("NeedsEvents = %v, want %v", got, tc.wantEvents)
			}
		})
	}
}

func TestNeedsRecount(t *testing.T) {
	for name, tc := range map[string]struct {
		observed outcome.Observed
		want     bool
	}{
		"running":                              {observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(running(true))}},
		"no Pod":                               {observed: outcome.Observed{Before: capturing(), Job: job()}},
		"ended with an account":                {observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(complete(), 0))}},
		"killed":                               {observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(recounted(), 137))}, want: true},
		"killed without an account":            {observed: outcome.Observed{Job: job(), Agent: agent(raw("", 137))}, want: true},
		"killed, and judged":                   {observed: outcome.Observed{Before: completed(), Job: job(), Agent: agent(ended(recounted(), 137))}},
		"killed, and the Pod is being deleted": {observed: outcome.Observed{Before: capturing(), Job: job(), Agent: agent(ended(recounted(), 137), deleting)}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outcome.NeedsRecount(tc.observed); got != tc.want {
				t.Errorf("NeedsRecount = %v, want %v", got, tc.want)
			}
		})
	}
}

// recounted is the account of a probe that was killed, with what a keeper found in its file.
func recounted() account.Account {
	return account.Account{
		State: account.StateCapturing, Started: dawn, Counts: account.Counts{Seen: 7, Packets: 7},
		Files: []account.File{{Name: "web.pcapng", Bytes: 700}},
	}
}

// FuzzJudge checks that the entry fits the API's limits for every termination message, which a Pod can choose.
func FuzzJudge(f *testing.F) {
	b, err := complete().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b), int32(0))
	f.Add(`{"v":1,"state":"done","complete":true,"reason":"../../x","engine":"\u0000","engineMessage":"\u001b[2J","files":[{"name":"../../etc/passwd","bytes":-1}]}`, int32(3))
	f.Add(`{"v":3,"state":"done","complete":true,"seen":3,"events":1,"lost":{"ring":1,"../x\u0000":1}}`, int32(0))
	f.Add("\xff\xfe", int32(137))
	f.Fuzz(func(t *testing.T, message string, exitCode int32) {
		v := outcome.Judge(outcome.Observed{Job: job(), Agent: agent(raw(message, exitCode)), RetainFor: time.Hour}, dawn)
		e := v.Entry
		if !e.Phase.Final() || e.Reason == "" || len(e.Reason) > 64 || len(e.Message) > 512 || len(e.Engine) > 32 || len(e.EngineMessage) > 256 {
			t.Errorf("entry %+v does not fit", e)
		}
		if strings.ContainsFunc(e.Reason, func(c rune) bool { return !unicode.IsLetter(c) }) {
			t.Errorf("reason %q is not valid for a condition", e.Reason)
		}
		if e.Packets < 0 || e.Bytes < 0 || e.Dropped.Kernel < 0 || e.Truncated < 0 || e.Events < 0 {
			t.Errorf("entry %+v has negative counts", e)
		}
		for place, n := range e.Lost {
			if len(e.Lost) > 8 || n < 0 || strings.ContainsFunc(place, func(c rune) bool { return !unicode.IsLetter(c) }) {
				t.Errorf("lost %v does not fit", e.Lost)
			}
		}
		for _, file := range e.Files {
			if file.Name == "" || len(file.Name) > 255 || file.Bytes < 0 || strings.Contains(file.Name, "/") {
				t.Errorf("file %+v does not fit", file)
			}
		}
	})
}

func entry(phase sondev1.Phase, reason, message string) sondev1.PodResult {
	return sondev1.PodResult{Phase: phase, Reason: reason, Message: message}
}

func capturing() sondev1.PodResult {
	return withJob(entry(sondev1.PhaseCapturing, sondev1.ReasonCapturing, ""))
}

func completed() sondev1.PodResult {
	e := withJob(entry(sondev1.PhaseCompleted, sondev1.ReasonDuration, ""))
	e.Packets, e.AvailableUntil, e.Files = 10, &until, []sondev1.ResultFile{{Name: "web.pcapng"}}
	return e
}

func withJob(e sondev1.PodResult) sondev1.PodResult { e.Job = "web-1-qwer"; return e }

func job() *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "sonde-system", Name: "web-1-qwer", CreationTimestamp: metav1.NewTime(dawn)}}
}

func failed(reason string) *batchv1.Job {
	j := job()
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: reason, Message: "words"}}
	return j
}

// restarting sets the keeper's restart rule, so that the kubelet restarts it.
func restarting(p *corev1.Pod) {
	p.Spec.Containers = []corev1.Container{{Name: "keeper", RestartPolicyRules: []corev1.ContainerRestartRule{{}}}}
}

func keeperEnded(code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: "words"}}
	}
}

func agent(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "keeper", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, {Name: "probe"},
	}}}
	for _, c := range changes {
		c(p)
	}
	return p
}

func probe(p *corev1.Pod) *corev1.ContainerStatus { return &p.Status.ContainerStatuses[1] }

func deleting(p *corev1.Pod) { now := metav1.NewTime(dawn); p.DeletionTimestamp = &now }

func waiting(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodPending
		probe(p).State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	}
}

func running(attached bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		probe(p).State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(dawn)}
		probe(p).Started = &attached
	}
}

func raw(message string, exitCode int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		probe(p).State.Terminated = &corev1.ContainerStateTerminated{ExitCode: exitCode, Message: message, FinishedAt: metav1.NewTime(dawn)}
	}
}

func ended(a account.Account, exitCode int32) func(*corev1.Pod) {
	b, err := a.Marshal()
	if err != nil {
		panic(err)
	}
	return raw(string(b), exitCode)
}

func complete() account.Account {
	return account.Account{
		State: account.StateDone, Reason: "Duration", Complete: true,
		Counts: account.Counts{Seen: 10, Packets: 10}, Files: []account.File{{Name: "web.pcapng", Bytes: 100}},
	}
}

func incomplete(reason, message string) account.Account {
	return account.Account{
		State: account.StateCapturing, Reason: reason, Message: message,
		Counts: account.Counts{Seen: 5, Packets: 5}, Files: []account.File{{Name: "web.pcapng", Bytes: 50}},
	}
}
