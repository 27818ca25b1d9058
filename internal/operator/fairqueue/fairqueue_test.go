package fairqueue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// workers of the tests' controllers.
const workers = 4

// existing returns the requests of the objects that exist when the workers start.
func existing(all ...reconcile.Request) func(context.Context) []reconcile.Request {
	return func(context.Context) []reconcile.Request { return all }
}

func requestOf(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// TestOrder checks that namespaces take turns, and that each namespace's requests keep their order.
func TestOrder(t *testing.T) {
	q := newOrder(workers - 1)
	for _, r := range []string{"a/1", "a/2", "a/3", "b/1", "c/1", "b/2"} {
		q.Push(requestOf(r[:1], r[2:]))
	}
	var got []string
	for q.Len() > 0 {
		r := q.Pop()
		q.ended(r.Namespace)
		got = append(got, r.Namespace+"/"+r.Name)
		if len(got) == 2 {
			q.Push(requestOf("d", "1"))
		}
	}
	if diff := cmp.Diff([]string{"a/1", "b/1", "c/1", "a/2", "b/2", "d/1", "a/3"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if len(q.waiting)+len(q.turns)+len(q.running) > 0 {
		t.Errorf("an empty queue keeps %v, %v, %v", q.waiting, q.turns, q.running)
	}
}

// TestWorkerForOthers checks that the passes of one namespace leave a worker to others, and continue when one of them has ended.
func TestWorkerForOthers(t *testing.T) {
	var slow []reconcile.Request
	for i := range workers {
		slow = append(slow, requestOf("slow", fmt.Sprint(i)))
	}
	q := New(workers, existing(slow...))("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	get := func(want string) {
		t.Helper()
		if r, _ := q.Get(); r.String() != want {
			t.Errorf("next pass %s, want %s", r, want)
		}
	}
	for i := range workers - 1 {
		get(fmt.Sprintf("slow/%d", i))
	}
	if n := q.Len(); n > 0 {
		t.Errorf("%d requests for the last worker, want none", n)
	}
	q.Add(requestOf("shop", "new"))
	get("shop/new")
	q.Add(requestOf("slow", "0")) // again, after its pass
	q.Done(requestOf("slow", "0"))
	get(fmt.Sprintf("slow/%d", workers-1))
	q.Done(requestOf("shop", "new"))
	q.Done(requestOf("slow", "1"))
	get("slow/0")
}

// TestFlood checks that a thousand requests of one namespace put off another namespace's by one pass. The control is client-go's own
// order.
func TestFlood(t *testing.T) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond, time.Second)
	var all []reconcile.Request
	for i := range 1000 {
		all = append(all, requestOf("flood", fmt.Sprint(i)))
	}
	all = append(all, requestOf("shop", "new"))
	control := workqueue.NewTypedRateLimitingQueue(limiter)
	for _, r := range all {
		control.Add(r)
	}
	for name, tc := range map[string]struct {
		queue workqueue.TypedRateLimitingInterface[reconcile.Request]
		want  int
	}{"fair": {New(workers, existing(all...))("test", limiter), 1}, "control": {control, 1000}} {
		t.Run(name, func(t *testing.T) {
			defer tc.queue.ShutDown()
			before := 0
			for ; ; before++ {
				r, _ := tc.queue.Get()
				tc.queue.Done(r)
				if r.Namespace == "shop" {
					break
				}
			}
			if before != tc.want {
				t.Errorf("%d passes before that of the other namespace, want %d", before, tc.want)
			}
		})
	}
}
