// Package fairqueue gives each namespace its turn at a controller's workers, so that no number of objects in one namespace delays
// another's.
package fairqueue

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// New returns the NewQueue of a controller with this many workers, at least two. The requests of one namespace occupy all workers
// but one: a pass may wait, for example for a keeper or for the API server. all returns the requests of all objects, from the cache.
//
// A replica that does not lead runs the watches of its controllers (EnableWarmup), and no workers. Its queue drops requests: it would
// keep one for each object that ever was. When the workers start, it adds those of all.
func New(workers int, all func(context.Context) []reconcile.Request) func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		order := newOrder(workers - 1)
		ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: order})
		return &queue{TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
			Name:          name,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: ordered}),
		}), order: order, all: all}
	}
}

// queue is a work queue whose order learns when a pass has ended.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	order *order

	all   func(context.Context) []reconcile.Request
	begin sync.Once
	works atomic.Bool // there are workers
}

// Get implements workqueue.TypedInterface. Workers call it, so there are some.
func (q *queue) Get() (reconcile.Request, bool) {
	q.begin.Do(func() {
		q.works.Store(true) // first: the cache has each object whose request was dropped before
		for _, r := range q.all(context.Background()) {
			q.TypedRateLimitingInterface.Add(r)
		}
	})
	return q.TypedRateLimitingInterface.Get()
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(r reconcile.Request) {
	if q.works.Load() {
		q.TypedRateLimitingInterface.Add(r)
	}
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue) AddAfter(r reconcile.Request, delay time.Duration) {
	if q.works.Load() {
		q.TypedRateLimitingInterface.AddAfter(r, delay)
	}
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *queue) AddRateLimited(r reconcile.Request) {
	if q.works.Load() {
		q.TypedRateLimitingInterface.AddRateLimited(r)
	}
}

// Done implements workqueue.TypedInterface. It wakes no other worker: the one that calls it gets the next request, which may be
// the one that now may run.
func (q *queue) Done(r reconcile.Request) {
	q.order.ended(r.Namespace)
	q.TypedRateLimitingInterface.Done(r)
}

// order gives each namespace that has requests one turn after another, and leaves a worker to the others. client-go's work queue
// does everything else. controller-runtime's priority queue orders by priority alone.
type order struct {
	perNamespace int // passes of a namespace at the same time

	mu      sync.Mutex
	turns   []string // namespaces with requests, the next one first
	waiting map[string][]reconcile.Request
	running map[string]int // passes by namespace
}

var _ workqueue.Queue[reconcile.Request] = &order{}

func newOrder(perNamespace int) *order {
	return &order{perNamespace: perNamespace, waiting: map[string][]reconcile.Request{}, running: map[string]int{}}
}

func (o *order) ended(namespace string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running[namespace]--; o.running[namespace] == 0 {
		delete(o.running, namespace)
	}
}

// Touch implements workqueue.Queue: a request that is added again keeps its place.
func (o *order) Touch(reconcile.Request) {}

// Push implements workqueue.Queue.
func (o *order) Push(r reconcile.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting[r.Namespace]) == 0 {
		o.turns = append(o.turns, r.Namespace)
	}
	o.waiting[r.Namespace] = append(o.waiting[r.Namespace], r)
}

// Len implements workqueue.Queue. It counts the requests that may run now.
func (o *order) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, namespace := range o.turns {
		n += min(len(o.waiting[namespace]), o.perNamespace-o.running[namespace])
	}
	return n
}

// Pop implements workqueue.Queue. The queue is not empty.
func (o *order) Pop() reconcile.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := slices.IndexFunc(o.turns, func(namespace string) bool { return o.running[namespace] < o.perNamespace })
	namespace := o.turns[next]
	o.turns = slices.Delete(o.turns, next, next+1)
	r := o.waiting[namespace][0]
	if left := o.waiting[namespace][1:]; len(left) > 0 {
		o.waiting[namespace] = left
		o.turns = append(o.turns, namespace)
	} else {
		delete(o.waiting, namespace)
	}
	o.running[namespace]++
	return r
}
