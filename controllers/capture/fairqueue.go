package capture

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// fairQueue gives each namespace that has captures to reconcile one turn after another, so that no number of captures in one
// namespace delays another's. It is the order of client-go's work queue, which does everything else. controller-runtime's
// priority queue orders by priority alone.
type fairQueue struct {
	turns   []string // namespaces with requests, the next one first
	waiting map[string][]reconcile.Request
	length  int
}

var _ workqueue.Queue[reconcile.Request] = &fairQueue{}

func newFairQueue() *fairQueue { return &fairQueue{waiting: map[string][]reconcile.Request{}} }

// newQueue is the NewQueue of a controller.
func newQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: newFairQueue()})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		Name:          name,
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: ordered}),
	})
}

// Touch implements workqueue.Queue: a request that is added again keeps its place.
func (q *fairQueue) Touch(reconcile.Request) {}

// Push implements workqueue.Queue.
func (q *fairQueue) Push(r reconcile.Request) {
	if len(q.waiting[r.Namespace]) == 0 {
		q.turns = append(q.turns, r.Namespace)
	}
	q.waiting[r.Namespace] = append(q.waiting[r.Namespace], r)
	q.length++
}

// Len implements workqueue.Queue.
func (q *fairQueue) Len() int { return q.length }

// Pop implements workqueue.Queue. The queue is not empty.
func (q *fairQueue) Pop() reconcile.Request {
	namespace := q.turns[0]
	q.turns = q.turns[1:]
	r := q.waiting[namespace][0]
	if left := q.waiting[namespace][1:]; len(left) > 0 {
		q.waiting[namespace] = left
		q.turns = append(q.turns, namespace)
	} else {
		delete(q.waiting, namespace)
	}
	q.length--
	return r
}
