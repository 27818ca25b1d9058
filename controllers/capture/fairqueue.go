package capture

import (
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// perNamespace is how many workers the captures of one namespace may occupy: a pass may wait 20 s for keepers.
const perNamespace = workers - 1

// fairQueue gives each namespace that has captures to reconcile one turn after another, and leaves a worker to the others. So no
// number of captures in one namespace delays another's. It is the order of client-go's work queue, which does everything else.
// controller-runtime's priority queue orders by priority alone.
type fairQueue struct {
	mu      sync.Mutex
	turns   []string // namespaces with requests, the next one first
	waiting map[string][]reconcile.Request
	running map[string]int // passes by namespace
}

var _ workqueue.Queue[reconcile.Request] = &fairQueue{}

func newFairQueue() *fairQueue {
	return &fairQueue{waiting: map[string][]reconcile.Request{}, running: map[string]int{}}
}

// limitedQueue is a work queue whose fairQueue learns when a pass has ended.
type limitedQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	order *fairQueue
}

// newQueue is the NewQueue of a controller.
func newQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	order := newFairQueue()
	ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: order})
	return limitedQueue{workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		Name:          name,
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: ordered}),
	}), order}
}

// Done implements workqueue.TypedInterface. It wakes no other worker: the one that calls it gets the next request, which may be
// the one that now may run.
func (q limitedQueue) Done(r reconcile.Request) {
	q.order.ended(r.Namespace)
	q.TypedRateLimitingInterface.Done(r)
}

func (q *fairQueue) ended(namespace string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running[namespace]--; q.running[namespace] == 0 {
		delete(q.running, namespace)
	}
}

// Touch implements workqueue.Queue: a request that is added again keeps its place.
func (q *fairQueue) Touch(reconcile.Request) {}

// Push implements workqueue.Queue.
func (q *fairQueue) Push(r reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting[r.Namespace]) == 0 {
		q.turns = append(q.turns, r.Namespace)
	}
	q.waiting[r.Namespace] = append(q.waiting[r.Namespace], r)
}

// Len implements workqueue.Queue. It counts the requests that may run now.
func (q *fairQueue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, namespace := range q.turns {
		n += min(len(q.waiting[namespace]), perNamespace-q.running[namespace])
	}
	return n
}

// Pop implements workqueue.Queue. The queue is not empty.
func (q *fairQueue) Pop() reconcile.Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	next := slices.IndexFunc(q.turns, func(namespace string) bool { return q.running[namespace] < perNamespace })
	namespace := q.turns[next]
	q.turns = slices.Delete(q.turns, next, next+1)
	r := q.waiting[namespace][0]
	if left := q.waiting[namespace][1:]; len(left) > 0 {
		q.waiting[namespace] = left
		q.turns = append(q.turns, namespace)
	} else {
		delete(q.waiting, namespace)
	}
	q.running[namespace]++
	return r
}
