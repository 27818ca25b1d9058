package outcome

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// serving reports whether the keeper of an agent's Pod still has the files.
func serving(s Seen) bool {
	agent := s.Agent
	if agent == nil || agent.DeletionTimestamp != nil || agent.Status.Phase == corev1.PodFailed || agent.Status.Phase == corev1.PodSucceeded {
		return false
	}
	return container(agent, captureconfig.ContainerKeeper) != nil && keeperEnd(s) == nil
}

// keeperEnd is how the keeper ended for good; nil while it runs, or is about to be started again.
func keeperEnd(s Seen) *corev1.ContainerStateTerminated {
	keeper := container(s.Agent, captureconfig.ContainerKeeper)
	if keeper == nil || keeper.State.Terminated == nil {
		return nil
	}
	switch keeper.State.Terminated.ExitCode {
	case 0, agentjob.KeeperFailed, agentjob.ExitUnknown: // what the rule of internal/agentjob excepts
	default:
		if restarts(s.Agent) {
			return nil
		}
	}
	return keeper.State.Terminated
}

// restarts reports whether the keeper of an agent's Pod is started again. An API server that knows nothing of it drops
// the rule.
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

// waiting says why an agent's Pod has not started.
func waiting(agent *corev1.Pod) string {
	for _, c := range agent.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			return c.Name + ": " + w.Reason + ": " + w.Message
		}
	}
	for _, c := range agent.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return "see the Pod " + agent.Namespace + "/" + agent.Name
}

func failedBy(job *batchv1.Job) string {
	if c := failedCondition(job); c != nil {
		return c.Reason
	}
	return ""
}

func failure(job *batchv1.Job) string {
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

// jobReason turns a Job's reason into one of ours.
func jobReason(job string) string {
	if job == batchv1.JobReasonDeadlineExceeded {
		return sondev1.ReasonDeadlineExceeded
	}
	return sondev1.ReasonNotStarted
}

// NeedsNode reports whether the verdict depends on the state of the node.
func NeedsNode(s Seen, now time.Time) bool {
	probe := container(s.Agent, captureconfig.ContainerProbe)
	switch {
	case s.Before.Phase.Final(), probe != nil && probe.State.Terminated != nil:
		return false
	case s.Agent == nil:
		return s.Before.Phase == sondev1.PhaseCapturing || failedBy(s.Job) != ""
	case s.Agent.Status.Phase == corev1.PodFailed:
		return s.Agent.Status.Reason != podEvicted // as those are whose node was removed
	default:
		end := overdue(s, probe, now)
		return !end.IsZero() && !now.Before(end)
	}
}

// NeedsEvents reports whether the verdict depends on why the Job has no Pod.
func NeedsEvents(s Seen, now time.Time) bool {
	if s.Before.Reason == sondev1.ReasonJobRefused {
		return false // known already
	}
	return !s.Before.Phase.Final() && s.Job != nil && s.Agent == nil && s.Job.Status.Active == 0 && failedBy(s.Job) == "" &&
		s.Before.Phase != sondev1.PhaseCapturing && !now.Before(born(s).Add(RefusedAfter))
}

// overdue is when the probe should have ended at the latest; zero if it does not run. Where the node's clock is wrong,
// the probe started when its Pod was made: else a node that is slow to report for a moment would count as lost.
func overdue(s Seen, probe *corev1.ContainerStatus, now time.Time) time.Time {
	if probe == nil || probe.State.Running == nil {
		return time.Time{}
	}
	started, made := probe.State.Running.StartedAt.Time, s.Agent.CreationTimestamp.Time
	if started.Before(made) || started.After(now) {
		started = made
	}
	return started.Add(processWait + s.Duration + endGrace)
}

// later is t, or a while from now if t is over: the node may still answer.
func later(now, t time.Time) time.Time {
	if now.Before(t) {
		return t
	}
	return now.Add(endGrace)
}

// born is when the Job was made.
func born(s Seen) time.Time {
	if s.Job == nil {
		return s.Agent.CreationTimestamp.Time
	}
	return s.Job.CreationTimestamp.Time
}
