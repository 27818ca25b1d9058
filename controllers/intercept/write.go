package intercept

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pass"
)

// detailsInterval is how often at most a status is written that differs in details alone. Otherwise busy intercepts, or one user's 50
// requests for a workload whose Pods come and go, would be written in each pass, and all others would wait for that.
const detailsInterval = 10 * time.Second

// changed is a request whose status is to be written.
type changed struct {
	*request
	before *sondev1.InterceptRequest
}

// report computes the status of each request, and writes those that are due, maxChanges at most. It returns when a pass should follow that
// writes the others; zero if none is left.
func (r *Reconciler) report(ctx context.Context, o *observation, p *plan, done *actions) (again time.Duration, err error) {
	now := r.Clock.Now()
	var due []changed
	for _, q := range o.requests {
		before := q.DeepCopy()
		q.recorded = before.Status.Phase
		q.resume(r.previous[q.UID])
		statusOf(q, o, p, done, now)
		switch difference, age := compare(&before.Status, &q.Status), now.Sub(q.written); {
		case difference == nothing, difference == details && age < detailsInterval:
			r.transition(ctx, q)
		case age < pass.ConflictDelay: // the cache may not have the last one yet
			again = pass.ConflictDelay
		default:
			due = append(due, changed{q, before})
		}
	}
	var errs []error
	for _, c := range batch(due, func(c changed) string { return c.Namespace }, now) {
		// Before the status is stored: a manager that dies in between repeats the record, and does not leave it out. And the API server may take
		// no status, for example because the object is as large as etcd allows: Stowaway has the route already.
		r.transition(ctx, c.request)
		// The answer is not kept: it has more than the cache, and texts of its own.
		err := pass.PatchStatus(ctx, r.Client, c.DeepCopy(), c.before, &c.before.Status, &c.Status, fieldOwner)
		if err != nil {
			errs = append(errs, fmt.Errorf("InterceptRequest %s/%s: %w", c.Namespace, c.Name, err))
			continue
		}
		c.written = now
	}
	if len(due) > maxChanges && len(errs) < maxChanges { // not at once if the API server takes none
		again = nextBatch
	}
	return again, errors.Join(errs...)
}

// resume takes over what the pass before has computed, and perhaps not written: the last counters of Pods whose carriers are gone.
func (q *request) resume(last *request) {
	if last == nil {
		return
	}
	q.recorded = last.recorded // a status may have been written without an answer
	q.written = last.written
	q.Status.Pods, q.Status.PodsOmitted, q.Status.RemovedPods = slices.Clone(last.Status.Pods), last.Status.PodsOmitted, last.Status.RemovedPods
}

// difference between the status that is written and the one that a pass has computed.
type difference int

const (
	nothing difference = iota
	// details are Pods, counters, texts and the heartbeat.
	details
	// state is the rest: for example the phase, or the reason of a condition.
	state
)

func compare(was, is *sondev1.InterceptRequestStatus) difference {
	switch {
	case equality.Semantic.DeepEqual(was, is):
		return nothing
	case equality.Semantic.DeepEqual(withoutDetails(was), withoutDetails(is)):
		return details
	}
	return state
}

func withoutDetails(s *sondev1.InterceptRequestStatus) *sondev1.InterceptRequestStatus {
	c := *s
	c.Heartbeat, c.Pods, c.PodsOmitted, c.RemovedPods = nil, nil, 0, nil
	c.Conditions = slices.Clone(s.Conditions)
	for i := range c.Conditions {
		c.Conditions[i].Message = ""
	}
	return &c
}
