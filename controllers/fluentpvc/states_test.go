package fluentpvc

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// change makes an observation differ from the usual one: a Pod whose containers run, a bound claim, no Job.
type change func(*observation)

func noClaim(o *observation)   { o.claim = nil }
func noPod(o *observation)     { o.pod = nil }
func lost(o *observation)      { o.claim.Status.Phase = corev1.ClaimLost }
func unbound(o *observation)   { o.claim.Spec.VolumeName, o.claim.Status.Phase = "", corev1.ClaimPending }
func podFailed(o *observation) { o.pod.Status.Phase = corev1.PodFailed }
func used(o *observation)      { o.users = []string{"debug"} }

func annotated(key, value string) change {
	return func(o *observation) {
		if o.binding.Annotations == nil {
			o.binding.Annotations = map[string]string{}
		}
		o.binding.Annotations[key] = value
	}
}

func jobOf(conditions ...batchv1.JobConditionType) change {
	return func(o *observation) {
		o.job = &batchv1.Job{}
		for _, c := range conditions {
			o.job.Status.Conditions = append(o.job.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue})
		}
	}
}

func failures(n int32) change { return func(o *observation) { o.binding.Status.Failures = n } }

func since(d time.Duration) change {
	return func(o *observation) { o.binding.Status.PhaseTime = new(metav1.NewTime(noon.Add(-d))) }
}

func containers(sidecar, other corev1.ContainerState, restarts int32) change {
	return func(o *observation) {
		o.pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "app", State: other}, {Name: "sidecar", State: sidecar, RestartCount: restarts},
		}
	}
}

// restarted is a sidecar that ended a time after the container that still runs has started, before or after it, and was started again.
func restarted(after time.Duration) change {
	return func(o *observation) {
		containers(running, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}, 1)(o)
		o.pod.Status.ContainerStatuses = append(o.pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: "later", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(time.Hour))}},
		})
		last := &o.pod.Status.ContainerStatuses[1].LastTerminationState
		last.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(noon.Add(after))}
	}
}

// forgotten: the node has restarted, and its runtime has forgotten when the containers ended.
func forgotten(o *observation) {
	containers(running, running, 1)(o)
	o.pod.Status.ContainerStatuses[0].RestartCount = 1
}

// native makes the sidecar an init container.
func native(sidecar, other corev1.ContainerState, restarts int32) change {
	return func(o *observation) {
		containers(sidecar, other, restarts)(o)
		s := &o.pod.Status
		s.InitContainerStatuses, s.ContainerStatuses = s.ContainerStatuses[1:], s.ContainerStatuses[:1]
	}
}

// outlived is the Pod of a Job that ends: a native sidecar of another system ends last.
func outlived(o *observation) {
	containers(exited, exited, 0)(o)
	o.pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "mesh", State: running}}
}

var (
	running = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	exited  = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
)

func keep(o *observation) {
	o.binding.Spec.Template.DeletePodIfSidecarContainerTerminationDetected = new(false)
}

func newObservation(phase sondev1.BindingPhase, changes ...change) *observation {
	o := &observation{
		now: noon,
		binding: &sondev1.FluentPVCBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "logs-0123-abc", UID: "b-1"},
			Spec: sondev1.FluentPVCBindingSpec{Pod: sondev1.ObjectReference{Name: "web-1", UID: "p-1"}, Template: sondev1.FluentPVCSpec{
				SidecarContainerTemplate: corev1.Container{Name: "sidecar"}, Retention: "1h",
				Finalizer: sondev1.FinalizerPolicy{MaxAttempts: 3, Backoff: "10s", FailedRetention: "24h"},
			}},
			Status: sondev1.FluentPVCBindingStatus{Phase: phase, PhaseTime: new(metav1.NewTime(noon))},
		},
		pod: &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		claim: &corev1.PersistentVolumeClaim{
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		},
	}
	containers(running, running, 0)(o)
	for _, c := range changes {
		c(o)
	}
	return o
}

func TestNext(t *testing.T) {
	const (
		pending   = sondev1.BindingPending
		ready     = sondev1.BindingReady
		outOfUse  = sondev1.BindingOutOfUse
		applied   = sondev1.BindingFinalizerJobApplied
		succeeded = sondev1.BindingFinalizerJobSucceeded
		failed    = sondev1.BindingFinalizerJobFailed
		discarded = sondev1.BindingDiscarded
		unknown   = sondev1.BindingUnknown
		dataLost  = sondev1.BindingDataLost
	)
	discard, retry := annotated(sondev1.AnnotationDiscard, ""), annotated(sondev1.AnnotationRetry, "1")
	tests := map[string]struct {
		phase sondev1.BindingPhase
		with  []change
		// wantPhase is empty if the binding is deleted, and equals phase if nothing changes.
		wantPhase sondev1.BindingPhase
		wantAct   action
	}{
		"new":                       {"", []change{noClaim}, ready, createClaim},
		"claim exists already":      {pending, nil, ready, nothing},
		"new, and the Pod has gone": {pending, []change{noClaim, noPod}, discarded, nothing},
		"new, and the Pod has gone without a volume": {pending, []change{unbound, noPod}, discarded, nothing},
		"new, and the Pod has left data":             {pending, []change{noPod}, ready, nothing},
		"new, and discarded":                         {pending, []change{noClaim, discard}, discarded, nothing},
		"Pod runs":                                   {ready, nil, ready, nothing},
		"Pod runs, and discard is requested":         {ready, []change{discard}, ready, nothing},
		"Pod waits to be scheduled":                  {ready, []change{unbound}, ready, nothing},
		"Pod gone before a volume was bound":         {ready, []change{unbound, noPod}, discarded, nothing},
		"Pod gone, its copy waits for the volume":    {ready, []change{unbound, noPod, used}, outOfUse, nothing},
		"Pod has failed":                             {ready, []change{podFailed}, outOfUse, nothing},
		"Pod has gone":                               {ready, []change{noPod}, outOfUse, nothing},
		"claim gone":                                 {ready, []change{noClaim}, unknown, nothing},
		"claim and Pod gone":                         {ready, []change{noClaim, noPod}, unknown, nothing},
		"volume lost":                                {ready, []change{lost}, unknown, nothing},
		"sidecar ended":                              {ready, []change{containers(exited, running, 0)}, ready, evictPod},
		"sidecar restarted":                          {ready, []change{containers(running, running, 1)}, ready, evictPod},
		"sidecar restarted beside the app":           {ready, []change{restarted(time.Second)}, ready, evictPod},
		"sidecar restarted before the app started":   {ready, []change{restarted(0)}, ready, nothing},
		"all restarted, at unknown times":            {ready, []change{forgotten}, ready, nothing},
		"native sidecar restarted":                   {ready, []change{native(exited, running, 1)}, ready, evictPod},
		"native sidecar restarted after the others":  {ready, []change{native(running, exited, 1)}, ready, nothing},
		"sidecar ended, a native one runs":           {ready, []change{outlived}, ready, nothing},
		"sidecar ended, Pods are kept":               {ready, []change{keep, containers(exited, running, 0)}, ready, nothing},
		"sidecar ended after the others":             {ready, []change{containers(exited, exited, 0)}, ready, nothing},
		"other container ended":                      {ready, []change{containers(running, exited, 0)}, ready, nothing},
		"out of use":                                 {outOfUse, []change{noPod}, applied, createJob},
		"out of use, another Pod reads":              {outOfUse, []change{noPod, used}, outOfUse, nothing},
		"out of use, backoff":                        {outOfUse, []change{noPod, failures(2), since(19 * time.Second)}, outOfUse, nothing},
		"out of use, backoff over":                   {outOfUse, []change{noPod, failures(2), since(20 * time.Second)}, applied, createJob},
		"out of use, discarded":                      {outOfUse, []change{noPod, discard}, discarded, nothing},
		"out of use, claim gone":                     {outOfUse, []change{noPod, noClaim}, unknown, nothing},
		"Job runs":                                   {applied, []change{noPod, jobOf()}, applied, nothing},
		"Job is ready to succeed":                    {applied, []change{noPod, jobOf("SuccessCriteriaMet")}, applied, nothing},
		"Job succeeded":                              {applied, []change{noPod, jobOf(batchv1.JobComplete)}, succeeded, nothing},
		"Job failed":                                 {applied, []change{noPod, jobOf(batchv1.JobFailed)}, outOfUse, nothing},
		"last Job failed":                            {applied, []change{noPod, failures(2), jobOf(batchv1.JobFailed)}, failed, nothing},
		"Job deleted":                                {applied, []change{noPod}, outOfUse, nothing},
		"Job runs, claim gone":                       {applied, []change{noPod, noClaim, jobOf()}, unknown, nothing},
		"Job runs, discarded":                        {applied, []change{noPod, discard, jobOf()}, discarded, nothing},
		"succeeded, retained":                        {succeeded, []change{noPod, since(59 * time.Minute)}, succeeded, nothing},
		"succeeded, retention over":                  {succeeded, []change{noPod, since(time.Hour)}, succeeded, deleteClaim},
		"succeeded, discarded":                       {succeeded, []change{noPod, discard}, succeeded, deleteClaim},
		"succeeded, claim gone":                      {succeeded, []change{noPod, noClaim}, "", deleteBinding},
		"failed for good":                            {failed, []change{noPod, jobOf(batchv1.JobFailed)}, failed, nothing},
		"failed, retry":                              {failed, []change{noPod, retry, jobOf(batchv1.JobFailed)}, outOfUse, nothing},
		"failed, Job deleted":                        {failed, []change{noPod}, outOfUse, nothing},
		"failed, discarded":                          {failed, []change{noPod, discard, jobOf(batchv1.JobFailed)}, discarded, nothing},
		"failed, kept long enough":                   {failed, []change{noPod, since(24 * time.Hour), jobOf(batchv1.JobFailed)}, discarded, nothing},
		"failed, retry while it was kept":            {failed, []change{noPod, retry, since(24 * time.Hour), jobOf(batchv1.JobFailed)}, outOfUse, nothing},
		"failed, kept, retry and discard":            {failed, []change{noPod, retry, discard, since(24 * time.Hour), jobOf(batchv1.JobFailed)}, discarded, nothing},
		"failed, claim gone":                         {failed, []change{noPod, noClaim, jobOf(batchv1.JobFailed)}, unknown, nothing},
		"discarded":                                  {discarded, []change{noPod}, discarded, deleteClaim},
		"discarded, claim gone":                      {discarded, []change{noPod, noClaim}, "", deleteBinding},
		"unknown, claim gone":                        {unknown, []change{noClaim}, dataLost, nothing},
		"unknown, volume still lost":                 {unknown, []change{lost}, unknown, nothing},
		"unknown, volume lost and discarded":         {unknown, []change{lost, discard}, discarded, nothing},
		"unknown, claim is back":                     {unknown, nil, ready, nothing},
		"unknown, claim is back, and a Job runs":     {unknown, []change{noPod, jobOf()}, applied, nothing},
		"unknown, claim is back, and a Job failed":   {unknown, []change{noPod, jobOf(batchv1.JobFailed)}, outOfUse, nothing},
		"unknown, claim is back after the Pod's end": {unknown, []change{noPod}, outOfUse, nothing},
		"data lost":                                  {dataLost, []change{noClaim, since(23 * time.Hour)}, dataLost, nothing},
		"data lost for a day":                        {dataLost, []change{noClaim, since(24 * time.Hour)}, "", deleteBinding},
		"data lost, discarded":                       {dataLost, []change{noClaim, discard}, "", deleteBinding},
	}
	used := map[string]bool{}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := next(newObservation(tc.phase, tc.with...))
			if !ok {
				got = transition{to: tc.phase}
			}
			if got.to != tc.wantPhase || got.act != tc.wantAct {
				t.Errorf("to %q by action %d (%s), want %q by %d", got.to, got.act, got.when, tc.wantPhase, tc.wantAct)
			}
			used[string(got.from)+": "+got.when] = true
		})
	}
	for _, row := range transitions {
		if !used[string(row.from)+": "+row.when] {
			t.Errorf("no test takes the row %q of %s", row.when, row.from)
		}
	}
}

// A retry is acted on once.
func TestRetryOnce(t *testing.T) {
	o := newObservation(sondev1.BindingFinalizerJobFailed, noPod, annotated(sondev1.AnnotationRetry, ""), jobOf(batchv1.JobFailed), failures(3))
	row, ok := next(o)
	if !ok || row.to != sondev1.BindingOutOfUse {
		t.Fatalf("got %+v, want a retry", row)
	}
	enter(o, row)
	if o.binding.Status.Failures != 0 {
		t.Errorf("%d failures after a retry, want 0", o.binding.Status.Failures)
	}
	o.binding.Status.Phase = sondev1.BindingFinalizerJobFailed
	if row, ok := next(o); ok {
		t.Errorf("the same request leads to %s again", row.to)
	}
	o.binding.Annotations[sondev1.AnnotationRetry] = "2"
	if _, ok := next(o); !ok {
		t.Error("a new request does nothing")
	}
}

func TestBackoff(t *testing.T) {
	p := policy{firstBackoff: 10 * time.Second}
	for n, want := range map[int32]time.Duration{0: 0, 1: 10 * time.Second, 2: 20 * time.Second, 3: 40 * time.Second, 9: 2560 * time.Second, 10: time.Hour, 50: time.Hour} {
		if got := p.backoff(n); got != want {
			t.Errorf("after %d failures %s, want %s", n, got, want)
		}
	}
}
