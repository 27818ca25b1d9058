package collector

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pass"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

// Delays between attempts. Something that did not answer is tried again sooner.
const (
	minDelay          = 10 * time.Second
	maxDelay          = 10 * time.Minute
	maxUncountedDelay = 30 * time.Second
)

// maxRemedies is how often the operator tries to make a failed release good, besides attempts that do not count.
const maxRemedies = 10

// record writes the result of the last run into the status, once. It is pure but for the status.
func record(o *observation) {
	s := &o.collector.Status
	retry := pass.RetryRequested(o.collector.Annotations)
	if s.ObservedGeneration != o.collector.Generation || s.Retried != retry {
		s.ObservedGeneration, s.Attempts, s.Failures, s.NextAttempt = o.collector.Generation, 0, 0, nil
	}
	if s.Retried != retry {
		s.Retried, s.StalledGeneration, s.Checked = retry, 0, nil
	}
	s.Release, s.Namespace = o.collector.ReleaseName(), o.collector.ReleaseNamespace()
	last := o.last()
	if last == nil {
		return
	}
	if s.ReportedJob == last.job.Name || last.number < o.reportedRun() {
		return // the Job of the newest report may be gone, and an earlier one still there
	}
	s.Job = last.job.Name
	r := reportOf(last)
	if r == nil {
		return
	}
	o.countIfCut(r, last)
	s.ReportedJob, o.reported = s.Job, r
	if r.Revision > 0 || len(r.History) > 0 || r.Remediated == release.Uninstalled { // otherwise it knows nothing of the release
		s.Revision, s.ChartVersion, s.History = int64(r.Revision), r.ChartVersion, nil
		for _, h := range r.History {
			s.History = append(s.History, sondev1.CollectorRevision{
				Revision: int64(h.Revision), ChartVersion: h.ChartVersion, Status: h.Status, Time: new(metav1.Unix(h.Unix, 0)),
			})
		}
	}
	if last.remedy {
		o.recordRemedy(r, last.generation)
	} else {
		o.recordOutcome(r, last.generation)
	}
	if last.retried != s.Retried { // requested while it ran: it may have read the chart and the values before
		s.Attempts, s.Failures, s.NextAttempt, s.StalledGeneration, s.Checked = 0, 0, nil, 0, nil
	}
}

// reportedRun is the number of the last run whose report is in the status; 0 if none is.
func (o *observation) reportedRun() int64 {
	name := o.collector.Status.ReportedJob
	n, err := strconv.ParseInt(name[strings.LastIndexByte(name, '-')+1:], 10, 64)
	if err != nil || runName(o.collector, n) != name {
		return 0
	}
	return n
}

// deadlineMargin is how much the clocks of node and API server may differ.
const deadlineMargin = 10 * time.Second

// countIfCut counts an attempt that the Job's deadline has cut while objects were written. To the releaser it looks like the drain of its
// node. Where Pods start slowly, the deadline comes before the end of the releaser's own time, and a failed upgrade would never be rolled back.
func (o *observation) countIfCut(r *release.Report, last *run) {
	if !r.Uncounted || r.Reason == release.ReasonLockLost || last.generation != o.collector.Generation || !o.wroteObjects(r, last) {
		return
	}
	started := last.job.CreationTimestamp.Time
	if t := last.job.Status.StartTime; t != nil { // later if the Job was suspended: the deadline counts from here
		started = t.Time
	}
	if last.finished().Before(started.Add(deadlineOf(o.collector) - deadlineMargin)) {
		return
	}
	r.Uncounted, r.Reason, r.Message = false, release.ReasonNotReady, "the Job's deadline ended the attempt: "+r.Message
}

// wroteObjects reports whether an attempt has left a revision that is not deployed, and that no earlier report had. A remedy reads no chart
// before it writes, and an uninstallation makes no revision.
func (o *observation) wroteObjects(r *release.Report, last *run) bool {
	return isTouched(r) && (last.remedy || !slices.ContainsFunc(o.collector.Status.History, func(h sondev1.CollectorRevision) bool {
		return h.Revision == int64(r.History[0].Revision) && h.Time != nil && h.Time.Unix() == r.History[0].Unix
	}))
}

// finished returns when the releaser of a run ended; zero if that is not known.
func (r *run) finished() time.Time {
	for i := range r.pods {
		for j := range r.pods[i].Status.ContainerStatuses {
			if s := &r.pods[i].Status.ContainerStatuses[j]; s.Name == release.Container && s.State.Terminated != nil {
				return s.State.Terminated.FinishedAt.Time
			}
		}
	}
	return time.Time{}
}

// recordOutcome sets what a report says about the release. One about an older generation counts no attempt of the current one.
func (o *observation) recordOutcome(r *release.Report, generation int64) {
	c := o.collector
	s := &c.Status
	current := generation == c.Generation
	switch {
	case r.Outcome == release.Ready:
		o.set(sondev1.ConditionReleased, metav1.ConditionTrue, r.Reason, r.Message)
		o.set(sondev1.ConditionRemediated, metav1.ConditionFalse, sondev1.ReasonNothingFailed, "the last attempt succeeded")
		s.ReleasedGeneration = generation
		s.Checked = new(metav1.NewTime(o.now.Truncate(time.Second)))
		if current {
			s.Attempts, s.Failures, s.NextAttempt = 0, 0, nil
		}
		return
	case current && s.ReleasedGeneration == c.Generation && !isTouched(r):
		o.recordLook(r)
		return
	case current:
		s.ReleasedGeneration = 0 // a run that only had to look may have found a newer chart, or other values, and failed
		o.recordFailure(r)
	}
	o.set(sondev1.ConditionReleased, metav1.ConditionFalse, r.Reason, r.Message)
	o.set(sondev1.ConditionRemediated, metav1.ConditionFalse, sondev1.ReasonNotRemediated, "the last attempt failed, and the release was not rolled back")
}

// isTouched reports whether a failed attempt has left a revision that is not deployed.
func isTouched(r *release.Report) bool {
	return len(r.History) > 0 && r.History[0].Status != release.Deployed
}

// recordLook notes a failed look at a release that was as the spec says. Others follow without end: whatever made it fail may pass. If
// only something did not answer, the release is taken for what it was.
func (o *observation) recordLook(r *release.Report) {
	s := &o.collector.Status
	s.Attempts++
	s.NextAttempt = o.next(r.Uncounted)
	halfway := r.Reason == release.ReasonLockLost || r.Reason == release.ReasonReleaserFailed // perhaps
	if !r.Uncounted || halfway || o.unchecked() {
		o.set(sondev1.ConditionReleased, metav1.ConditionFalse, r.Reason, r.Message)
	}
}

// recordFailure counts a failed attempt of the current generation.
func (o *observation) recordFailure(r *release.Report) {
	s := &o.collector.Status
	s.Attempts++
	if r.Outcome == release.Stalled {
		s.StalledGeneration = o.collector.Generation
		return
	}
	if !r.Uncounted {
		s.Failures++
	}
	s.NextAttempt = nil
	if !isSpent(o.collector) {
		s.NextAttempt = o.next(r.Uncounted)
	}
}

// notRemediated begins a message of the condition Remediated.
const notRemediated = "the failed release could not be made good: "

// recordRemedy sets what a report says about a failed release that had to be made good. Released keeps what had failed.
func (o *observation) recordRemedy(r *release.Report, generation int64) {
	c := o.collector
	s := &c.Status
	current := generation == c.Generation
	if r.Outcome == release.Retry {
		if current {
			s.Attempts++
			if !r.Uncounted {
				s.Failures++
			}
			if s.NextAttempt = o.next(true); s.Failures > retriesOf(actionOf(c))+maxRemedies {
				s.StalledGeneration, s.NextAttempt = generation, nil
			}
		}
		o.set(sondev1.ConditionRemediated, metav1.ConditionFalse, sondev1.ReasonNotRemediated, notRemediated+r.Message)
		return
	}
	if current {
		s.StalledGeneration, s.NextAttempt = generation, nil
	}
	switch {
	case r.Remediated == release.RolledBack:
		o.set(sondev1.ConditionRemediated, metav1.ConditionTrue, sondev1.ReasonRolledBack, fmt.Sprintf("revision %d has the objects of the last one that was ready", r.Revision))
	case r.Remediated == release.Uninstalled:
		o.set(sondev1.ConditionRemediated, metav1.ConditionTrue, sondev1.ReasonUninstalled, "the failed release was uninstalled")
	case r.Reason == release.ReasonUpToDate:
		o.set(sondev1.ConditionRemediated, metav1.ConditionFalse, sondev1.ReasonNothingFailed, "the attempts failed before they changed the release")
	default: // for example, someone else has a release of this name
		o.set(sondev1.ConditionRemediated, metav1.ConditionFalse, sondev1.ReasonNotRemediated, notRemediated+r.Message)
	}
}

// next is when the next attempt follows.
func (o *observation) next(uncounted bool) *metav1.Time {
	return new(metav1.NewTime(o.now.Add(delay(o.collector.Status.Attempts, uncounted)).Truncate(time.Second)))
}

// delay before the next attempt.
func delay(attempts int32, uncounted bool) time.Duration {
	most := maxDelay
	if uncounted {
		most = maxUncountedDelay
	}
	return min(minDelay<<min(max(attempts-1, 0), 10), most)
}

// reportOf returns the report of a run, or nil while there is none. For a run that has ended without one it says how the releaser ended.
// The report is read before the Job is marked as ended: the Pod may be gone by then.
func reportOf(r *run) *release.Report {
	why, known := "its Pod is gone", false
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
			why, known = fmt.Sprintf("exit code %d, %s", s.State.Terminated.ExitCode, s.State.Terminated.Reason), true
			if s.State.Terminated.Reason == "OOMKilled" {
				why += ": the chart needs more memory than the releaser has"
			}
		}
		if p.Status.Phase == corev1.PodFailed && p.Status.Message != "" {
			why, known = p.Status.Reason+": "+p.Status.Message, true
		}
	}
	if !r.ended() {
		return nil
	}
	for _, c := range r.job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Reason == batchv1.JobReasonDeadlineExceeded {
			why, known = "it took longer than it may", true
			if w := waiting(r); w != "" {
				why += ": " + w
			}
		}
	}
	return &release.Report{
		Outcome: release.Retry, Reason: release.ReasonReleaserFailed, Uncounted: !known,
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
