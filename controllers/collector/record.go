package collector

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/release"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Delays between attempts. Something that did not answer is tried again sooner.
const (
	minDelay          = 10 * time.Second
	maxDelay          = 10 * time.Minute
	maxUncountedDelay = 30 * time.Second
)

// record writes the result of the last run into the status, once. It is pure but for the status.
func record(o *observation) {
	s := &o.collector.Status
	retry := retryValue(o.collector)
	if s.ObservedGeneration != o.collector.Generation || s.Retried != retry {
		s.ObservedGeneration, s.Attempts, s.Failures, s.NextAttempt = o.collector.Generation, 0, 0, nil
	}
	if s.Retried != retry {
		s.Retried, s.StalledGeneration = retry, 0
	}
	s.Release, s.Namespace = o.collector.ReleaseName(), o.collector.ReleaseNamespace()
	last := o.last()
	if last == nil {
		return
	}
	s.Job = last.job.Name
	if !last.ended() || s.ReportedJob == s.Job {
		return
	}
	s.ReportedJob, o.reported = s.Job, true
	r := reportOf(last)
	if r.Reason != release.ReasonReleaserFailed && r.Reason != release.ReasonReleaseNameTaken { // these know nothing of the release
		s.Revision, s.ChartVersion, s.History = int64(r.Revision), r.ChartVersion, nil
		for _, h := range r.History {
			s.History = append(s.History, sondev1.CollectorRevision{
				Revision: int64(h.Revision), ChartVersion: h.ChartVersion, Status: h.Status, Time: new(metav1.Unix(h.Unix, 0)),
			})
		}
	}
	o.recordOutcome(r, last.generation)
}

// maxRetryValue bounds the part of the annotation that the status keeps, in bytes.
const maxRetryValue = 200

// retryValue is what the annotation with which users ask for another attempt says.
func retryValue(c *sondev1.Collector) string {
	value, ok := c.Annotations[sondev1.AnnotationRetry]
	if !ok {
		return ""
	}
	return "=" + text.Truncate(value, maxRetryValue) // also an empty value differs from none
}

// recordOutcome sets the conditions that only a report changes. A report about an older generation does not stall the current one.
func (o *observation) recordOutcome(r *release.Report, generation int64) {
	c := o.collector
	s := &c.Status
	current := generation == c.Generation
	switch r.Outcome {
	case release.Ready:
		o.set(sondev1.ConditionReleased, metav1.ConditionTrue, r.Reason, r.Message)
		o.set(sondev1.ConditionRemediated, metav1.ConditionFalse, sondev1.ReasonNothingFailed, "the last attempt succeeded")
		s.ReleasedGeneration = generation
		s.Checked = new(metav1.NewTime(o.now.Truncate(time.Second)))
		if current {
			s.Attempts, s.Failures, s.NextAttempt = 0, 0, nil
		}
		return
	case release.Stalled:
		if current {
			s.StalledGeneration = generation
			s.Attempts++
		}
	case release.Retry:
		if current {
			s.Attempts++
			if !r.Uncounted {
				s.Failures++
			}
			if s.Failures > o.retries() {
				s.StalledGeneration = generation
				break
			}
			s.NextAttempt = new(metav1.NewTime(o.now.Add(delay(s.Attempts, r.Uncounted)).Truncate(time.Second)))
		}
	}
	o.set(sondev1.ConditionReleased, metav1.ConditionFalse, r.Reason, r.Message)
	switch r.Remediated {
	case release.RolledBack:
		o.set(sondev1.ConditionRemediated, metav1.ConditionTrue, sondev1.ReasonRolledBack, fmt.Sprintf("revision %d is deployed again: %s", r.Revision, r.Message))
	case release.Uninstalled:
		o.set(sondev1.ConditionRemediated, metav1.ConditionTrue, sondev1.ReasonUninstalled, r.Message)
	default:
		o.set(sondev1.ConditionRemediated, metav1.ConditionFalse, sondev1.ReasonNotRemediated, "the last attempt failed, and the release was not rolled back")
	}
}

// retries of the attempt that has failed.
func (o *observation) retries() int32 {
	if o.collector.Status.Revision > 0 {
		return retriesOf(o.collector.Spec.Upgrade)
	}
	return retriesOf(o.collector.Spec.Install)
}

// delay before the next attempt.
func delay(attempts int32, uncounted bool) time.Duration {
	most := maxDelay
	if uncounted {
		most = maxUncountedDelay
	}
	return min(minDelay<<min(max(attempts-1, 0), 10), most)
}

// reportOf returns the report of a run that has ended. Without one it says how the releaser ended.
func reportOf(r *run) *release.Report {
	why := "its Pod is gone"
	for i := range r.pods {
		p := &r.pods[i]
		for j := range p.Status.ContainerStatuses {
			s := &p.Status.ContainerStatuses[j]
			if s.Name != release.Container || s.State.Terminated == nil {
				continue
			}
			report, err := release.ParseReport([]byte(s.State.Terminated.Message))
			if err == nil {
				return report
			}
			why = fmt.Sprintf("exit code %d, %s", s.State.Terminated.ExitCode, s.State.Terminated.Reason)
			if s.State.Terminated.Reason == "OOMKilled" {
				why += ": the chart needs more memory than the releaser has"
			}
		}
		if p.Status.Phase == corev1.PodFailed && p.Status.Message != "" {
			why = p.Status.Reason + ": " + p.Status.Message
		}
	}
	for _, c := range r.job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Reason == batchv1.JobReasonDeadlineExceeded {
			why = "it took longer than it may"
			if w := waiting(r); w != "" {
				why += ": " + w
			}
		}
	}
	return &release.Report{
		Outcome: release.Retry, Reason: release.ReasonReleaserFailed,
		Message: fmt.Sprintf("the releaser ended without a report (%s): see the log of Job %s", why, r.job.Name),
	}
}

// waiting says what a run's Pod waits for, if it does not run.
func waiting(r *run) string {
	for i := range r.pods {
		s := &r.pods[i].Status
		for j := range s.ContainerStatuses {
			if w := s.ContainerStatuses[j].State.Waiting; w != nil && w.Message != "" {
				return w.Reason + ": " + w.Message
			}
		}
		for _, c := range s.Conditions {
			if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue && c.Message != "" {
				return c.Message
			}
		}
	}
	return ""
}
