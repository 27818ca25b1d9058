package collector

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
)

// observation is what a pass has read.
type observation struct {
	collector *sondev1.Collector
	now       time.Time
	requester access.Requester
	// refused says why the stamp is not valid.
	refused string
	paused  bool
	// runs of the Collector, the oldest first.
	runs []run
	// running Jobs of other Collectors.
	running int
	// reported: the pass has read the report of the last run.
	reported bool
}

// run is a Job with its Pods.
type run struct {
	job        *batchv1.Job
	number     int64
	generation int64
	pods       []corev1.Pod
}

func (r *Reconciler) observe(ctx context.Context, c *sondev1.Collector) (*observation, error) {
	o := &observation{collector: c, now: r.Clock.Now()}
	claim, err := stamp.VerifyCollector(r.Key, c)
	if err != nil {
		o.refused = err.Error()
	}
	o.requester = claim.Requester
	if o.paused, err = pause.Requested(ctx, r.PauseConfig, r.Namespace); err != nil {
		return nil, err
	}
	var jobs batchv1.JobList
	if err := r.Own.List(ctx, &jobs); err != nil {
		return nil, fmt.Errorf("list Jobs: %w", err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if job.Labels[sondev1.LabelUID] != string(c.UID) || job.Namespace != c.ReleaseNamespace() {
			if !jobEnded(job) && job.DeletionTimestamp.IsZero() {
				o.running++
			}
			continue
		}
		number, err1 := strconv.ParseInt(job.Annotations[annotationRun], 10, 64)
		generation, err2 := strconv.ParseInt(job.Annotations[annotationGeneration], 10, 64)
		if err1 != nil || err2 != nil {
			continue // not the operator's
		}
		o.runs = append(o.runs, run{job: job, number: number, generation: generation})
	}
	slices.SortFunc(o.runs, func(a, b run) int { return int(a.number - b.number) })
	return o, r.observePods(ctx, o)
}

func (r *Reconciler) observePods(ctx context.Context, o *observation) error {
	var pods corev1.PodList
	err := r.Own.List(ctx, &pods, client.InNamespace(o.collector.ReleaseNamespace()), client.MatchingLabels{sondev1.LabelUID: string(o.collector.UID)})
	if err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	for i := range pods.Items {
		owner := metav1.GetControllerOf(&pods.Items[i])
		if owner == nil {
			continue
		}
		for j := range o.runs {
			if o.runs[j].job.UID == owner.UID {
				o.runs[j].pods = append(o.runs[j].pods, pods.Items[i])
			}
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

// ended reports whether a run can write nothing any more: its Job makes no further Pod, and no Pod runs.
func (r *run) ended() bool {
	return jobEnded(r.job) && !slices.ContainsFunc(r.pods, func(p corev1.Pod) bool {
		return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
	})
}

func jobEnded(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}
