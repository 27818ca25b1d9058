// Package health checks whether the manager works. Watchdog finds work that hangs, for /healthz, whose failure restarts the
// process. Contact, Synced and Exists check, for /readyz, whether a replica can decide on requests.
package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Watchdog records since when each piece of work has been running. Work that runs for longer than Limit hangs: no work of
// the manager takes so long, unless it waits for an event that never comes.
type Watchdog struct {
	// Limit of one piece of work.
	Limit time.Duration
	Clock clock.PassiveClock

	mu      sync.Mutex
	next    uint64
	running map[uint64]work
}

type work struct {
	name  string
	since time.Time
}

// Begin records that a piece of work has begun. The caller calls end when it has ended.
func (w *Watchdog) Begin(name string) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == nil {
		w.running = map[uint64]work{}
	}
	w.next++
	id := w.next
	w.running[id] = work{name, w.Clock.Now()}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.running, id)
	}
}

// Watch returns r with a record of each pass.
func (w *Watchdog) Watch(name string, r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		defer w.Begin(name + " " + req.String())()
		return r.Reconcile(ctx, req)
	})
}

// Check is a health check that fails while work hangs. The error names the work.
func (w *Watchdog) Check(*http.Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, task := range w.running {
		if d := w.Clock.Since(task.since); d > w.Limit {
			errs = append(errs, fmt.Errorf("%s has been running for %s, which is longer than %s: it hangs", task.name, d.Round(time.Second), w.Limit))
		}
	}
	return errors.Join(errs...)
}

// Informer reports whether the cache of one kind is filled.
type Informer interface{ HasSynced() bool }

// Synced returns a readiness check that fails until the cache holds these kinds. It starts their informers.
func Synced(ctx context.Context, from cache.Informers, kinds ...client.Object) (func(*http.Request) error, error) {
	informers := map[string]Informer{}
	for _, kind := range kinds {
		i, err := from.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("make the cache of %T: %w", kind, err)
		}
		informers[fmt.Sprintf("%T", kind)] = i
	}
	return synced(informers), nil
}

func synced(informers map[string]Informer) func(*http.Request) error {
	return func(*http.Request) error {
		var errs []error
		for kind, i := range informers {
			if !i.HasSynced() {
				errs = append(errs, fmt.Errorf("the cache of %s is not filled yet: see the manager's log for the reason", kind))
			}
		}
		return errors.Join(errs...)
	}
}
