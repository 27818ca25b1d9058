package memapi

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Queue is a controller's work queue. It enqueues as controller-runtime does.
type Queue struct {
	Clock clock.PassiveClock
	// Keys wait for a pass, in this order.
	Keys []types.NamespacedName
	// NoRequeue makes a mutant that ignores RequeueAfter.
	NoRequeue bool

	timers   map[types.NamespacedName]time.Time
	failures map[types.NamespacedName]int
	busy     map[types.NamespacedName]bool
}

// NewQueue returns an empty queue.
func NewQueue(c clock.PassiveClock) *Queue {
	return &Queue{Clock: c, timers: map[types.NamespacedName]time.Time{}, failures: map[types.NamespacedName]int{}, busy: map[types.NamespacedName]bool{}}
}

// Add enqueues a key that does not wait yet.
func (q *Queue) Add(key types.NamespacedName) {
	if !slices.Contains(q.Keys, key) {
		q.Keys = append(q.Keys, key)
	}
}

// AddDue enqueues the keys whose timers are due.
func (q *Queue) AddDue() {
	for _, key := range slices.SortedFunc(maps.Keys(q.timers), compareNames) {
		if !q.Clock.Now().Before(q.timers[key]) {
			delete(q.timers, key)
			q.Add(key)
		}
	}
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// NextTimer is when the next timer is due; zero if there is none.
func (q *Queue) NextTimer() time.Time {
	var next time.Time
	for _, at := range q.timers {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// Ready returns the waiting keys that no worker has.
func (q *Queue) Ready() []types.NamespacedName {
	return slices.DeleteFunc(slices.Clone(q.Keys), func(k types.NamespacedName) bool { return q.busy[k] })
}

// Start takes a key from the queue for a pass.
func (q *Queue) Start(key types.NamespacedName) {
	q.Keys = slices.DeleteFunc(q.Keys, func(k types.NamespacedName) bool { return k == key })
	delete(q.timers, key)
	q.busy[key] = true
}

// Finish ends a pass, and sets the timer of the next one.
func (q *Queue) Finish(key types.NamespacedName, res ctrl.Result, err error) {
	delete(q.busy, key)
	switch {
	case err != nil:
		backoff := min(5*time.Millisecond<<min(q.failures[key], 20), 1000*time.Second)
		q.failures[key]++
		q.timers[key] = q.Clock.Now().Add(backoff)
	case q.NoRequeue:
	case res.RequeueAfter > 0:
		delete(q.failures, key)
		q.timers[key] = q.Clock.Now().Add(res.RequeueAfter)
	default:
		delete(q.failures, key)
	}
}
