package slim

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Job is a Job as the cache keeps it.
type Job struct {
	Meta
	active int32
	// ended holds the conditions Complete and Failed. It is nil while the Job runs.
	ended []batchv1.JobCondition
}

// FromJob returns the slim form of a Job. It keeps whom the Job is for and how it ended, and drops the Pod template.
func FromJob(j *batchv1.Job) *Job {
	kept := &Job{Meta: metaOf(&j.ObjectMeta), active: j.Status.Active}
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed {
			kept.ended = append(kept.ended, c)
		}
	}
	return kept
}

// Expand returns the Job with the fields that are kept.
func (j *Job) Expand() *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: j.expand(),
		Status:     batchv1.JobStatus{Active: j.active, Conditions: append([]batchv1.JobCondition(nil), j.ended...)},
	}
}

// DeepCopyObject returns a *batchv1.Job.
func (j *Job) DeepCopyObject() runtime.Object { return j.Expand() }

// Equal reports whether two Jobs are equal except for their resourceVersion.
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
