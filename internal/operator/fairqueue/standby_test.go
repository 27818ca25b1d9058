package fairqueue

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// TestStandby checks that the queue of a controller that runs its watches and no workers keeps no request, in whatever way one comes, and
// that its workers begin with all objects.
func TestStandby(t *testing.T) {
	var q *queue
	passes := make(chan string, 100_000)
	c, err := controller.NewUnmanaged("standby", controller.Options{
		EnableWarmup: new(true), CacheSyncTimeout: time.Minute,
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			q = New(workers, existing(requestOf("shop", "a"), requestOf("shop", "b")))(name, limiter).(*queue)
			return q
		},
		Reconciler: reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			passes <- r.String()
			return reconcile.Result{}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		for i := range 10_000 {
			q.Add(requestOf("flood", fmt.Sprint("added-", i)))
			q.AddAfter(requestOf("flood", fmt.Sprint("delayed-", i)), time.Millisecond)
			q.AddRateLimited(requestOf("flood", fmt.Sprint("again-", i)))
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := c.(interface{ Warmup(context.Context) error }).Warmup(ctx); err != nil {
		t.Fatal(err)
	}
	if n := q.Len() + q.NumRequeues(requestOf("flood", "again-0")); n != 0 {
		t.Errorf("a queue without workers keeps requests: %d", n)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	got := []string{<-passes, <-passes}
	q.Add(requestOf("shop", "last"))
	got = append(got, <-passes)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"shop/a", "shop/b", "shop/last"}, got); diff != "" {
		t.Errorf("passes (-want +got):\n%s", diff)
	}
}
