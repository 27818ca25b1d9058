package slim

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Job is a Job as the cache keeps it.
type Job struct {
	Meta
	active int32
	// ended holds the conditions of a Job that has ended, and is nil before.
	ended []batchv1.JobCondition
}

// FromJob returns the compact form of a Job: for whom it was made, and how it ended. Nothing reads what it runs.
func FromJob(j *batchv1.Job) *Job {
	kept := &Job{Meta: metaOf(&j.ObjectMeta), active: j.Status.Active}
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed {
			kept.ended = append(kept.ended, c)
		}
	}
	return kept
}

// Expand returns the Job with all that is kept of it.
func (j *Job) Expand() *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: j.expand(),
		Status:     batchv1.JobStatus{Active: j.active, Conditions: append([]batchv1.JobCondition(nil), j.ended...)},
	}
}

// DeepCopyObject returns a *batchv1.Job, as that of a Pod returns a *corev1.Pod.
func (j *Job) DeepCopyObject() runtime.Object { return j.Expand() }

// Equal reports whether two Jobs differ in nothing but their version.
func (j *Job) Equal(other *Job) bool {
	if j.active != other.active || len(j.ended) != len(other.ended) || !j.equal(&other.Meta) {
		return false
	}
	for i := range j.ended {
		if j.ended[i] != other.ended[i] {
			return false
		}
	}
	return true
}
