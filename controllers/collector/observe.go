package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

// observation is what a pass has read.
type observation struct {
	collector *sondev1.Collector
	now       time.Time
	requester access.Requester
	// namespaceUID of the stamp: the requester was admitted for this namespace, and for no later one of its name.
	namespaceUID string
	// refused says why the stamp is not valid.
	refused string
	paused  bool
	// runs of the Collector, the oldest first.
	runs []run
	// anchored reports that the release is there although no run is.
	anchored bool
	// running and runningHere are other Collectors with a Job that runs, in all namespaces and in that of the release.
	running, runningHere int
	// stray says which releaser of this release may still run although it is in no run.
	stray string
	// reported is the report of the last run, if this pass has read it.
	reported *release.Report
}

// run is a Job with its Pods.
type run struct {
	job        *batchv1.Job
	number     int64
	generation int64
	// remedy: it only makes a failed release good.
	remedy bool
	// retried is the request for another attempt that it follows.
	retried string
	pods    []corev1.Pod
}

func (r *Reconciler) observe(ctx context.Context, c *sondev1.Collector) (*observation, error) {
	o := &observation{collector: c, now: r.Clock.Now()}
	claim, err := stamp.VerifyCollector(r.Key, c)
	if err != nil {
		o.refused = notAdmitted(c, err)
	}
	o.requester, o.namespaceUID = claim.Requester, claim.TargetNamespaceUID
	if o.paused, err = pause.Requested(ctx, r.PauseConfig, r.Namespace); err != nil {
		return nil, err
	}
	if err := r.observePlaces(ctx, o); err != nil {
		return nil, err
	}
	if err := r.observeJobs(ctx, o); err != nil {
		return nil, err
	}
	if len(o.runs) == 0 && c.Status.ReleasedGeneration == c.Generation {
		anchor, err := r.readAnchor(ctx, client.ObjectKey{Namespace: c.ReleaseNamespace(), Name: anchorName(c)})
		if err != nil && !apierrors.IsForbidden(err) { // a closed namespace is reported when the next Job is to be created
			return nil, err
		}
		o.anchored = anchor != nil && anchor.DeletionTimestamp.IsZero() && anchor.Labels[sondev1.LabelUID] == string(c.UID)
	}
	return o, r.observePods(ctx, o)
}

// notAdmitted says why a stamp is not valid, and what to do.
func notAdmitted(c *sondev1.Collector, err error) string {
	cause := "no webhook has admitted this spec (its signature is not valid): it was written while the operator's webhook did not run, or for another installation"
	switch {
	case errors.Is(err, stamp.ErrMissing):
		cause = "no webhook has admitted this spec (it is not signed): it was written while the operator's webhook did not run, or for another installation"
	case errors.Is(err, stamp.ErrNoNamespace):
		cause = "an earlier version of the operator has admitted this spec, and did not sign the UID of namespace " + c.ReleaseNamespace()
	}
	return cause + ". " + askForRetry(c)
}

// askForRetry says how to go on if the stamp no longer holds: the webhook signs anew for a user who has the right.
func askForRetry(c *sondev1.Collector) string {
	return fmt.Sprintf("If the spec is still wanted, let someone who may create Jobs in namespace %s run kubectl annotate collector %s -n %s --overwrite %s=\"$(date +%%s)\"",
		c.ReleaseNamespace(), c.Name, c.Namespace, sondev1.AnnotationRetry)
}

func (r *Reconciler) observeJobs(ctx context.Context, o *observation) error {
	var jobs batchv1.JobList
	if err := r.Own.List(ctx, &jobs, client.InNamespace(o.collector.ReleaseNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if job.Labels[sondev1.LabelUID] != string(o.collector.UID) {
			continue
		}
		one, ok := runOf(o.collector, job)
		switch {
		case ok:
			one.job = job.DeepCopy()
			o.runs = append(o.runs, one)
		case !target.JobEnded(job):
			o.stray = "Job " + job.Name + " has this Collector's label, but is none of its runs"
		}
	}
	slices.SortFunc(o.runs, func(a, b run) int { return cmp.Compare(a.number, b.number) })
	return nil
}

// isOf reports whether a Job of the API server is a run of a Collector. The cache has those with the labels only.
func isOf(c *sondev1.Collector, job *batchv1.Job) bool {
	_, ok := runOf(c, job)
	return ok && job.Labels[sondev1.LabelKind] == sondev1.CollectorKind && job.Labels[sondev1.LabelUID] == string(c.UID)
}

// runOf returns the run of a Job with a Collector's labels, or false if it is none.
func runOf(c *sondev1.Collector, job *batchv1.Job) (run, bool) {
	number, ok := runNumber(c, job)
	generation, err := strconv.ParseInt(job.Annotations[sondev1.AnnotationGeneration], 10, 64)
	return run{
		job: job, number: number, generation: generation,
		remedy: job.Annotations[annotationRemedy] == "true", retried: job.Annotations[annotationRetried],
	}, ok && err == nil
}

// runNumber returns the number of a Collector's run. Users can write Jobs with its labels and any number, so a run also has the name of its
// number, and a number that was given, or is the next one. The status may lack one: start creates no other before it knows the last.
func runNumber(c *sondev1.Collector, job *batchv1.Job) (number int64, ok bool) {
	number, err := strconv.ParseInt(job.Annotations[sondev1.AnnotationRun], 10, 64)
	return number, err == nil && number >= 1 && number-1 <= c.Status.Runs && job.Name == runName(c, number)
}

func (r *Reconciler) observePods(ctx context.Context, o *observation) error {
	var pods corev1.PodList
	// Users may write any number of Pods with the operator's label, so only the Collector's own are copied.
	if err := r.Own.List(ctx, &pods, client.InNamespace(o.collector.ReleaseNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Annotations[annotationRelease] != o.collector.ReleaseName() {
			continue
		}
		owner := metav1.GetControllerOf(pod)
		j := slices.IndexFunc(o.runs, func(r run) bool { return owner != nil && r.job.UID == owner.UID })
		switch {
		case j >= 0:
			o.runs[j].pods = append(o.runs[j].pods, *pod.DeepCopy())
		case isRunning(pod):
			o.stray = "Pod " + pod.Name + " is of an earlier Job"
		}
	}
	return nil
}

// last returns the newest run, or nil.
func (o *observation) last() *run {
	if len(o.runs) == 0 {
		return nil
	}
	return &o.runs[len(o.runs)-1]
}

// unended returns the newest run that can still write, or nil.
func (o *observation) unended() *run {
	for i := len(o.runs) - 1; i >= 0; i-- {
		if !o.runs[i].ended() {
			return &o.runs[i]
		}
	}
	return nil
}

// ended reports whether a run can write nothing any more: its Job makes no further Pod, and no Pod runs.
func (r *run) ended() bool {
	return target.JobEnded(r.job) && !slices.ContainsFunc(r.pods, func(p corev1.Pod) bool { return isRunning(&p) })
}

// started reports whether a container of the run has started.
func (r *run) started() bool {
	return slices.ContainsFunc(r.pods, func(p corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Waiting == nil })
	})
}

func isRunning(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}
