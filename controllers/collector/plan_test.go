package collector

import (
	"cmp"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func newCollector() *sondev1.Collector {
	return &sondev1.Collector{
		ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "mine", UID: "c-1", Generation: 2},
		Spec: sondev1.CollectorSpec{
			Collector: sondev1.CollectorRelease{Name: "collector"}, Tenant: sondev1.CollectorTenant{Reference: "ACME", Instance: "prod"},
		},
	}
}

// newRun is a run whose Pod has ended with a message, or runs if there is none.
func newRun(generation int64, message string) run {
	r := run{number: 1, generation: generation, job: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "job-1", UID: "j"}}}
	pod := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	if message != "" {
		r.job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		pod.Status.Phase = corev1.PodSucceeded
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: release.Container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}}}
	}
	r.pods = []corev1.Pod{pod}
	return r
}

func reportText(t *testing.T, r release.Report) string {
	t.Helper()
	r.Reason, r.Message = cmp.Or(r.Reason, release.ReasonReleased), cmp.Or(r.Message, "a message")
	b, err := r.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPlan(t *testing.T) {
	type set = func(o *observation)
	status := func(change func(s *sondev1.CollectorStatus)) set {
		return func(o *observation) {
			o.collector.Status.ObservedGeneration = 2
			change(&o.collector.Status)
		}
	}
	runs := func(all ...run) set { return func(o *observation) { o.runs = all } }
	// released: the last Job has succeeded, and its report was read.
	released := func(o *observation) {
		s := &o.collector.Status
		s.ObservedGeneration, s.ReleasedGeneration, s.Checked, s.Job, s.ReportedJob = 2, 2, new(metav1.NewTime(now)), "job-1", "job-1"
		o.runs = []run{newRun(2, "read before")}
	}
	for name, tc := range map[string]struct {
		observed []set
		state    state
		reason   string
		start    bool
		after    time.Duration
	}{
		"new":               {state: reconciling, reason: sondev1.ReasonReleasing, start: true},
		"runs":              {observed: []set{runs(newRun(2, ""))}, state: reconciling, reason: sondev1.ReasonReleasing},
		"runs, and changed": {observed: []set{runs(newRun(1, ""))}, state: reconciling, reason: sondev1.ReasonReleasing},
		"Pod still runs": {observed: []set{func(o *observation) {
			r := newRun(2, "{}")
			r.pods = append(r.pods, corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}})
			o.runs = []run{r}
		}}, state: reconciling, reason: sondev1.ReasonReleasing},
		"succeeded":             {observed: []set{runs(newRun(2, reportText(t, release.Report{Outcome: release.Ready, Revision: 1})))}, state: ready, reason: sondev1.ReasonUpToDate},
		"succeeded, changed":    {observed: []set{runs(newRun(1, reportText(t, release.Report{Outcome: release.Ready, Revision: 1})))}, state: reconciling, reason: sondev1.ReasonReleasing, start: true},
		"stalled":               {observed: []set{runs(newRun(2, reportText(t, release.Report{Outcome: release.Stalled, Reason: release.ReasonBadValues})))}, state: stalled, reason: release.ReasonBadValues},
		"stalled, changed":      {observed: []set{runs(newRun(1, reportText(t, release.Report{Outcome: release.Stalled, Reason: release.ReasonBadValues})))}, state: reconciling, reason: sondev1.ReasonReleasing, start: true},
		"failed":                {observed: []set{runs(newRun(2, reportText(t, release.Report{Outcome: release.Retry, Reason: release.ReasonNotReady})))}, state: reconciling, reason: sondev1.ReasonRetrying, after: 10 * time.Second},
		"no report":             {observed: []set{runs(newRun(2, "killed"))}, state: reconciling, reason: sondev1.ReasonRetrying, after: 10 * time.Second},
		"failed, clock ahead":   {observed: []set{status(func(s *sondev1.CollectorStatus) { s.NextAttempt = new(metav1.NewTime(now.Add(24 * time.Hour))) })}, state: reconciling, reason: sondev1.ReasonReleasing, start: true},
		"failed, time has come": {observed: []set{status(func(s *sondev1.CollectorStatus) { s.NextAttempt = new(metav1.NewTime(now)) })}, state: reconciling, reason: sondev1.ReasonReleasing, start: true},
		"not admitted":          {observed: []set{func(o *observation) { o.refused = "no stamp" }}, state: stalled, reason: sondev1.ReasonNotAdmitted},
		"suspended":             {observed: []set{func(o *observation) { o.collector.Spec.Suspend = true }}, state: held, reason: sondev1.ReasonSuspended},
		"paused":                {observed: []set{func(o *observation) { o.paused = true }}, state: held, reason: sondev1.ReasonPaused},
		"paused, and ready":     {observed: []set{func(o *observation) { o.paused = true }, released}, state: ready, reason: sondev1.ReasonUpToDate},
		"paused, and a look is due": {
			observed: []set{released, func(o *observation) { o.paused, o.runs, o.now = true, nil, now.Add(time.Hour) }}, state: ready, reason: sondev1.ReasonUpToDate,
		},
		"drift is due": {
			observed: []set{released, func(o *observation) { o.collector.Spec.Drift, o.now = sondev1.DriftWarn, now.Add(time.Hour) }},
			state:    ready, reason: sondev1.ReasonUpToDate, start: true,
		},
		"drift is due, many run": {
			observed: []set{released, func(o *observation) {
				o.collector.Spec.Drift, o.now, o.running = sondev1.DriftWarn, now.Add(time.Hour), maxRunning
			}},
			state: ready, reason: sondev1.ReasonUpToDate, after: queuedDelay,
		},
		"asked for": {
			observed: []set{released, func(o *observation) { o.collector.Annotations = map[string]string{sondev1.AnnotationRetry: "now"} }},
			state:    reconciling, reason: sondev1.ReasonReleasing, start: true,
		},
		"the last Job is lost, and the reported one before it is gone": { // run 1 is left, 2 was reported, 3 is lost
			observed: []set{released, runs(newRun(2, reportText(t, release.Report{Outcome: release.Stalled, Reason: release.ReasonBadValues}))), func(o *observation) {
				s := &o.collector.Status
				s.Runs, s.Job, s.ReportedJob = 3, runName(o.collector, 3), runName(o.collector, 2)
			}},
			state: ready, reason: sondev1.ReasonUpToDate, start: true,
		},
		"the last Job is gone": {
			observed: []set{released, func(o *observation) { o.runs = nil }}, state: ready, reason: sondev1.ReasonUpToDate, start: true,
		},
		"only the last Job is gone": {
			observed: []set{released, func(o *observation) { o.runs, o.anchored = nil, true }}, state: ready, reason: sondev1.ReasonUpToDate, after: defaultInterval,
		},
		"a Job is gone before it ended": {
			observed: []set{released, func(o *observation) { o.runs, o.anchored, o.collector.Status.Job = nil, true, "job-2" }},
			state:    ready, reason: sondev1.ReasonUpToDate, start: true,
		},
		"only the last Job is gone, for long": {
			observed: []set{released, func(o *observation) {
				o.runs, o.anchored = nil, true
				o.collector.Status.Checked = new(metav1.NewTime(now.Add(-defaultInterval)))
			}},
			state: ready, reason: sondev1.ReasonUpToDate, start: true,
		},
		"asked for while a Job ran": {
			observed: []set{
				func(o *observation) { o.collector.Annotations = map[string]string{sondev1.AnnotationRetry: "now"} },
				runs(newRun(2, reportText(t, release.Report{Outcome: release.Ready, Reason: sondev1.ReasonReleased, Revision: 1}))),
			},
			state: reconciling, reason: sondev1.ReasonReleasing, start: true,
		},
		"a Job that was asked for": {
			observed: []set{
				func(o *observation) { o.collector.Annotations = map[string]string{sondev1.AnnotationRetry: "now"} },
				runs(newRun(2, reportText(t, release.Report{Outcome: release.Ready, Reason: sondev1.ReasonReleased, Revision: 1}))),
				func(o *observation) { o.runs[0].retried = "=now" },
			},
			state: ready, reason: sondev1.ReasonUpToDate,
		},
		"asked for while the last attempt failed": {
			observed: []set{
				func(o *observation) { o.collector.Annotations = map[string]string{sondev1.AnnotationRetry: "now"} },
				runs(newRun(2, reportText(t, release.Report{Outcome: release.Stalled, Reason: release.ReasonBadValues}))),
			},
			state: reconciling, reason: sondev1.ReasonReleasing, start: true,
		},
		"a look failed": {observed: []set{released, func(o *observation) {
			o.runs[0] = newRun(2, reportText(t, release.Report{Outcome: release.Stalled, Reason: release.ReasonForbidden, History: []release.Revision{{Revision: 1, Status: release.Deployed}}}))
			o.collector.Status.ReportedJob = ""
		}}, state: reconciling, reason: sondev1.ReasonRetrying, after: minDelay},
		"a look lost its lock": {observed: []set{released, func(o *observation) {
			o.runs[0] = newRun(2, reportText(t, release.Report{Outcome: release.Retry, Reason: release.ReasonLockLost, Uncounted: true}))
			o.collector.Status.ReportedJob = ""
		}}, state: reconciling, reason: sondev1.ReasonRetrying, after: minDelay},
		"a look was not answered": {observed: []set{released, func(o *observation) {
			o.runs[0] = newRun(2, reportText(t, release.Report{Outcome: release.Retry, Reason: release.ReasonUnavailable, Uncounted: true}))
			o.collector.Status.ReportedJob = ""
		}}, state: ready, reason: sondev1.ReasonUpToDate, after: minDelay},
		"a look changed the release and failed": {observed: []set{released, func(o *observation) {
			o.runs[0] = newRun(2, reportText(t, release.Report{Outcome: release.Retry, Reason: release.ReasonNotReady, History: []release.Revision{{Revision: 2, Status: "failed"}}}))
			o.collector.Status.ReportedJob = ""
		}}, state: reconciling, reason: sondev1.ReasonRetrying, after: minDelay},
		"attempts are spent": {observed: []set{runs(newRun(2, reportText(t, release.Report{Outcome: release.Retry, Reason: release.ReasonNotReady}))), status(func(s *sondev1.CollectorStatus) {
			s.Failures = defaultRetries
		})}, state: reconciling, reason: sondev1.ReasonReleasing, start: true},
		"drift was looked for": {observed: []set{status(func(s *sondev1.CollectorStatus) {
			s.ReleasedGeneration, s.Checked = 2, new(metav1.NewTime(now.Add(-time.Minute)))
		}), func(o *observation) {
			o.collector.Spec.Drift, o.collector.Spec.Interval = sondev1.DriftRepair, "3m"
			o.runs, o.collector.Status.ReportedJob = []run{newRun(2, "read before")}, "job-1"
		}}, state: ready, reason: sondev1.ReasonUpToDate, after: 2 * time.Minute},
		"drift is looked for": {
			observed: []set{status(func(s *sondev1.CollectorStatus) {
				s.ReleasedGeneration, s.Checked = 2, new(metav1.NewTime(now.Add(-time.Hour)))
			}), func(o *observation) { o.collector.Spec.Drift = sondev1.DriftWarn }, runs(newRun(2, ""))},
			state: ready, reason: sondev1.ReasonUpToDate,
		},
		"a look has failed, and the next one's Job was deleted": {
			observed: []set{released, func(o *observation) {
				o.set(sondev1.ConditionReleased, metav1.ConditionFalse, release.ReasonUnavailable, "m")
				o.collector.Status.Runs = o.runs[0].number + 1
			}},
			state: reconciling, reason: sondev1.ReasonRetrying, start: true,
		},
		"a look was not answered, and the next one's Job was deleted": {
			observed: []set{released, func(o *observation) { o.collector.Status.Runs = o.runs[0].number + 1 }},
			state:    ready, reason: sondev1.ReasonUpToDate, start: true,
		},
		"asked for while paused": {
			observed: []set{released, func(o *observation) {
				o.collector.Annotations, o.paused = map[string]string{sondev1.AnnotationRetry: "now"}, true
			}},
			state: held, reason: sondev1.ReasonPaused,
		},
		"asked for, many run": {
			observed: []set{released, func(o *observation) {
				o.collector.Annotations, o.running = map[string]string{sondev1.AnnotationRetry: "now"}, maxRunning
			}},
			state: reconciling, reason: sondev1.ReasonQueued, after: queuedDelay,
		},
		"asked for, and the registry does not answer": {
			observed: []set{
				status(func(s *sondev1.CollectorStatus) { s.ReleasedGeneration = 2 }),
				runs(newRun(2, reportText(t, release.Report{Outcome: release.Retry, Reason: release.ReasonUnavailable, Uncounted: true}))),
			},
			state: reconciling, reason: sondev1.ReasonRetrying, after: 10 * time.Second,
		},
		"an attempt that was asked for": {
			observed: []set{status(func(s *sondev1.CollectorStatus) { s.ReleasedGeneration = 2 }), runs(newRun(2, ""))},
			state:    reconciling, reason: sondev1.ReasonReleasing,
		},
		"drifted": {
			observed: []set{runs(newRun(2, reportText(t, release.Report{Outcome: release.Ready, Reason: release.ReasonDrifted}))), func(o *observation) { o.collector.Spec.Drift = sondev1.DriftWarn }},
			state:    ready, reason: release.ReasonDrifted, after: 10 * time.Minute,
		},
		"many run":                        {observed: []set{func(o *observation) { o.running = maxRunning }}, state: reconciling, reason: sondev1.ReasonQueued, after: queuedDelay},
		"many run here":                   {observed: []set{func(o *observation) { o.running, o.runningHere = maxRunning/2, maxRunning/2 }}, state: reconciling, reason: sondev1.ReasonQueued, after: queuedDelay},
		"some run here":                   {observed: []set{func(o *observation) { o.running, o.runningHere = maxRunning/2, maxRunning/2-1 }}, state: reconciling, reason: sondev1.ReasonReleasing, start: true},
		"two namespaces have their share": {observed: []set{func(o *observation) { o.running, o.runningHere = 13, 7 }}, state: reconciling, reason: sondev1.ReasonQueued, after: queuedDelay},
		"a third one still has room":      {observed: []set{func(o *observation) { o.running, o.runningHere = 14, 0 }}, state: reconciling, reason: sondev1.ReasonReleasing, start: true},
		"a stray Pod":                     {observed: []set{func(o *observation) { o.stray = "p" }}, state: reconciling, reason: sondev1.ReasonReleasing, after: strayDelay},
		"stalled, asked again": {observed: []set{status(func(s *sondev1.CollectorStatus) { s.StalledGeneration = 2 }), func(o *observation) {
			o.collector.Annotations = map[string]string{sondev1.AnnotationRetry: "now"}
		}}, state: reconciling, reason: sondev1.ReasonReleasing, start: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &observation{collector: newCollector(), now: now}
			for _, set := range tc.observed {
				set(o)
			}
			record(o)
			p := planFor(o)
			if p.state != tc.state || p.reason != tc.reason || p.start != tc.start || p.after != tc.after || p.message == "" {
				t.Errorf("%+v, want state %d, reason %s, start %t, after %s", p, tc.state, tc.reason, tc.start, tc.after)
			}
		})
	}
}

func TestRecord(t *testing.T) {
	failure := release.Report{Outcome: release.Retry, Reason: release.ReasonNotReady, Message: "the Pod crashes"}
	for name, tc := range map[string]struct {
		report           release.Report
		before           sondev1.CollectorStatus
		generation       int64 // of the run; 2 is the Collector's
		attempts, failed int32
		delay            time.Duration
		released         metav1.ConditionStatus
		remediated       metav1.ConditionStatus
		revision         int64
	}{
		"ready":        {report: release.Report{Outcome: release.Ready}, generation: 2, before: sondev1.CollectorStatus{Attempts: 4, Failures: 3}, released: "True", remediated: "False"},
		"first":        {report: failure, generation: 2, attempts: 1, failed: 1, delay: 10 * time.Second, released: "False", remediated: "False"},
		"fifth":        {report: failure, generation: 2, before: sondev1.CollectorStatus{Attempts: 4, Failures: 2}, attempts: 5, failed: 3, delay: 160 * time.Second, released: "False", remediated: "False"},
		"last":         {report: failure, generation: 2, before: sondev1.CollectorStatus{Attempts: 3, Failures: 3}, attempts: 4, failed: 4, released: "False", remediated: "False"},
		"known since":  {report: release.Report{Outcome: release.Retry, Reason: release.ReasonUnavailable, Uncounted: true}, generation: 2, before: sondev1.CollectorStatus{Revision: 7}, attempts: 1, delay: minDelay, released: "False", remediated: "False", revision: 7},
		"many":         {report: failure, generation: 2, before: sondev1.CollectorStatus{Attempts: 1000, Failures: 1}, attempts: 1001, failed: 2, delay: maxDelay, released: "False", remediated: "False"},
		"uncounted":    {report: release.Report{Outcome: release.Retry, Reason: release.ReasonUnavailable, Uncounted: true}, generation: 2, before: sondev1.CollectorStatus{Attempts: 9, Failures: 1}, attempts: 10, failed: 1, delay: maxUncountedDelay, released: "False", remediated: "False"},
		"of an old":    {report: failure, generation: 1, released: "False", remediated: "False"},
		"of an old, 2": {report: release.Report{Outcome: release.Stalled, Reason: release.ReasonBadValues}, generation: 1, released: "False", remediated: "False"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &observation{collector: newCollector(), now: now, runs: []run{newRun(tc.generation, reportText(t, tc.report))}}
			o.collector.Status = tc.before
			o.collector.Status.ObservedGeneration = 2
			record(o)
			s := &o.collector.Status
			if s.Attempts != tc.attempts || s.Failures != tc.failed {
				t.Errorf("%d attempts, %d failures; want %d and %d", s.Attempts, s.Failures, tc.attempts, tc.failed)
			}
			switch {
			case tc.delay == 0 && s.NextAttempt != nil:
				t.Errorf("another attempt at %s", s.NextAttempt)
			case tc.delay > 0 && (s.NextAttempt == nil || s.NextAttempt.Sub(now) != tc.delay):
				t.Errorf("another attempt at %v, want in %s", s.NextAttempt, tc.delay)
			}
			for kind, want := range map[string]metav1.ConditionStatus{sondev1.ConditionReleased: tc.released, sondev1.ConditionRemediated: tc.remediated} {
				if c := condition(o.collector, kind); want == "" && c != nil || want != "" && (c == nil || c.Status != want) {
					t.Errorf("%s is %+v, want %q", kind, c, want)
				}
			}
			if s.Revision != tc.revision {
				t.Errorf("revision %d, want %d", s.Revision, tc.revision)
			}
			again := s.DeepCopy()
			record(o)
			if again.Attempts != s.Attempts || o.collector.Status.ReportedJob != "job-1" {
				t.Error("the report was recorded twice")
			}
		})
	}
}

// The deadline of the Job ends the releaser as a drain of its node does. If objects were written until then, the attempt counts, so that a
// failed upgrade is rolled back also where Pods start slowly.
func TestCutByTheDeadline(t *testing.T) {
	failed := []release.Revision{{Revision: 2, Status: "failed", Unix: 1002}, {Revision: 1, Status: release.Deployed, Unix: 1001}}
	known := func(revision int64) []sondev1.CollectorRevision { // the status of an earlier report
		return []sondev1.CollectorRevision{{Revision: revision, Status: "failed", Time: new(metav1.Unix(1000+revision, 0))}}
	}
	for name, tc := range map[string]struct {
		after      time.Duration // from the Job's creation until the releaser ended
		suspended  time.Duration // from the Job's creation until it started
		earlier    []sondev1.CollectorRevision
		reason     string
		history    []release.Revision
		generation int64
		remedy     bool
		counted    bool
	}{
		"at the deadline":               {after: defaultTimeout + extraTime + time.Second, history: failed, counted: true},
		"by a clock that is behind":     {after: defaultTimeout + extraTime - 5*time.Second, history: failed, counted: true},
		"a rollback":                    {after: defaultTimeout + extraTime + time.Second, history: failed, remedy: true, counted: true},
		"before, by a drain":            {after: defaultTimeout + extraTime - time.Minute, history: failed},
		"a drain after a suspension":    {after: defaultTimeout + extraTime + time.Second, suspended: time.Minute, history: failed},
		"a deadline after a suspension": {after: defaultTimeout + extraTime + time.Minute, suspended: time.Minute, history: failed, counted: true},
		"an earlier one had failed":     {after: defaultTimeout + extraTime + time.Second, history: failed, earlier: known(1), counted: true},
		"while it read the chart":       {after: defaultTimeout + extraTime + time.Second, history: failed, earlier: known(2)},
		"a remedy without a revision":   {after: defaultTimeout + extraTime + time.Second, history: failed, earlier: known(2), remedy: true, counted: true},
		"at an unknown time":            {history: failed},
		"before anything was written":   {after: defaultTimeout + extraTime + time.Second, history: failed[1:]},
		"it lost its lock":              {after: defaultTimeout + extraTime + time.Second, history: failed, reason: release.ReasonLockLost},
		"the spec has changed since":    {after: defaultTimeout + extraTime + time.Second, history: failed, generation: 1},
		"the history could not be read": {after: defaultTimeout + extraTime + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(cmp.Or(tc.generation, 2), reportText(t, release.Report{
				Outcome: release.Retry, Reason: cmp.Or(tc.reason, release.ReasonUnavailable), Message: "context canceled", Uncounted: true, History: tc.history,
			}))
			r.remedy, r.job.CreationTimestamp = tc.remedy, metav1.NewTime(now.Add(-time.Hour))
			if tc.after > 0 {
				r.pods[0].Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(r.job.CreationTimestamp.Add(tc.after))
			}
			if tc.suspended > 0 {
				r.job.Status.StartTime = new(metav1.NewTime(r.job.CreationTimestamp.Add(tc.suspended)))
			}
			pod, err := strip(&r.pods[0])
			if err != nil {
				t.Fatal(err)
			}
			job, err := strip(r.job)
			if err != nil {
				t.Fatal(err)
			}
			r.pods[0], r.job = *pod.(*corev1.Pod), job.(*batchv1.Job)
			o := &observation{collector: newCollector(), now: now, runs: []run{r}}
			o.collector.Status.ObservedGeneration, o.collector.Status.History = 2, tc.earlier
			record(o)
			if counted := o.collector.Status.Failures == 1; counted != tc.counted {
				t.Errorf("counted: %t, want %t", counted, tc.counted)
			}
			if c := condition(o.collector, sondev1.ConditionReleased); tc.counted && !tc.remedy && (c.Reason != release.ReasonNotReady || !strings.Contains(c.Message, "deadline")) {
				t.Errorf("%+v, want the deadline as the cause", c)
			}
		})
	}
}

// A releaser that ended without a report says how it ended.
func TestReportOfAKilledReleaser(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *run)
		want   string
	}{
		"memory": {func(r *run) {
			r.pods[0].Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
		}, "more memory"},
		"exit": {func(r *run) {
			r.pods[0].Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}
		}, "exit code 1"},
		"evicted": {func(r *run) {
			r.pods[0].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "the node was low on memory"}
		}, "Evicted: the node was low on memory"},
		"no Pod": {func(r *run) { r.pods = nil }, "its Pod is gone"},
		"deadline": {func(r *run) {
			r.pods[0].Status = corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
				Name: release.Container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}},
			}}}
			r.job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded}}
		}, "longer than it may: ImagePullBackOff: no such image"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(2, "killed")
			tc.change(&r)
			got := reportOf(&r)
			if got.Outcome != release.Retry || got.Uncounted != (name == "no Pod") || got.Reason != release.ReasonReleaserFailed || !strings.Contains(got.Message, tc.want) || !strings.Contains(got.Message, "Job job-1") {
				t.Errorf("%+v, want a message with %q", got, tc.want)
			}
		})
	}
}

// Whatever ends a run that makes a failed release good, another one follows until it is done, and the cause of the failure is kept.
func TestRemedy(t *testing.T) {
	for name, tc := range map[string]struct {
		message    string
		failures   int32
		stalled    bool
		remediated metav1.ConditionStatus
		reason     string
	}{
		"rolled back":      {message: reportText(t, release.Report{Outcome: release.Stalled, Remediated: release.RolledBack, Revision: 3}), failures: 4, stalled: true, remediated: "True", reason: sondev1.ReasonRolledBack},
		"uninstalled":      {message: reportText(t, release.Report{Outcome: release.Stalled, Remediated: release.Uninstalled}), failures: 4, stalled: true, remediated: "True", reason: sondev1.ReasonUninstalled},
		"nothing to do":    {message: reportText(t, release.Report{Outcome: release.Stalled, Reason: release.ReasonUpToDate}), failures: 4, stalled: true, remediated: "False", reason: sondev1.ReasonNothingFailed},
		"not possible":     {message: reportText(t, release.Report{Outcome: release.Stalled, Reason: release.ReasonReleaseNameTaken}), failures: 4, stalled: true, remediated: "False", reason: sondev1.ReasonNotRemediated},
		"killed":           {message: "no report", failures: 4, remediated: "False", reason: sondev1.ReasonNotRemediated},
		"killed again":     {message: "no report", failures: 4 + maxRemedies - 2, remediated: "False", reason: sondev1.ReasonNotRemediated},
		"killed too often": {message: "no report", failures: 4 + maxRemedies, stalled: true, remediated: "False", reason: sondev1.ReasonNotRemediated},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(2, tc.message)
			r.remedy = true
			o := &observation{collector: newCollector(), now: now, runs: []run{r}}
			s := &o.collector.Status
			s.ObservedGeneration, s.Failures, s.Revision = 2, tc.failures, 2
			o.set(sondev1.ConditionReleased, "False", release.ReasonNotReady, "the Pod crashes")
			record(o)
			if stalled := s.StalledGeneration == 2; stalled != tc.stalled || stalled == (s.NextAttempt != nil) {
				t.Errorf("stalled %t and next attempt %v, want stalled %t", stalled, s.NextAttempt, tc.stalled)
			}
			if c := condition(o.collector, sondev1.ConditionRemediated); c.Status != tc.remediated || c.Reason != tc.reason {
				t.Errorf("%+v, want %s %s", c, tc.remediated, tc.reason)
			}
			if c := condition(o.collector, sondev1.ConditionReleased); c.Reason != release.ReasonNotReady || c.Message != "the Pod crashes" {
				t.Errorf("%+v, want the cause", c)
			}
		})
	}
}

// A report is read as soon as it is there: the Pod may be gone when the Job has ended.
func TestReportBeforeTheJobEnds(t *testing.T) {
	r := newRun(2, reportText(t, release.Report{Outcome: release.Ready, Revision: 1}))
	r.job.Status.Conditions = nil
	o := &observation{collector: newCollector(), now: now, runs: []run{r}}
	record(o)
	if o.collector.Status.ReleasedGeneration != 2 {
		t.Errorf("status %+v, want the report in it", o.collector.Status)
	}
	o.collector.Generation = 3
	if p := planFor(o); p.start || p.state != reconciling {
		t.Errorf("plan %+v, want no run before the Job has ended", p)
	}
}

// A Pod that does not start is named after a while.
func TestSlowStart(t *testing.T) {
	r := newRun(2, "")
	r.pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: release.Container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
	r.job.CreationTimestamp = metav1.NewTime(now.Add(-10 * time.Second))
	o := &observation{collector: newCollector(), now: now, runs: []run{r}}
	if p := planFor(o); p.after != 20*time.Second || strings.Contains(p.message, "not started") {
		t.Errorf("after 10 s: %+v", p)
	}
	o.now = now.Add(time.Minute)
	if p := planFor(o); !strings.Contains(p.message, "has not started") {
		t.Errorf("after a minute: %+v", p)
	}
}
