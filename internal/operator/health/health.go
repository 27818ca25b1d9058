// Package health tells whether the manager does its work: Watchdog finds what hangs (for /healthz, whose
// failure restarts the process), Synced what is missing (for /readyz).
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

// Watchdog knows since when each piece of work has been running. Work that runs for longer than Limit
// hangs: nothing that the manager does takes so long, unless it waits for what will never come.
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

// Begin says that a piece of work has begun; the caller calls what it gets when it has ended. A nil
// Watchdog watches nothing.
func (w *Watchdog) Begin(name string) (end func()) {
	if w == nil {
		return func() {}
	}
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

// Watch returns r with each of its passes watched.
func (w *Watchdog) Watch(name string, r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		defer w.Begin(name + " " + req.String())()
		return r.Reconcile(ctx, req)
	})
}

// Check is a health check: it fails while something hangs.
func (w *Watchdog) Check(*http.Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, job := range w.running {
		if d := w.Clock.Since(job.since); d > w.Limit {
			errs = append(errs, fmt.Errorf("%s has been running for %s, which is longer than %s: it hangs", job.name, d.Round(time.Second), w.Limit))
		}
	}
	return errors.Join(errs...)
}

// Informer is a cache of one kind.
type Informer interface{ HasSynced() bool }

// Synced is a readiness check: it fails until the cache holds these kinds. It makes the cache hold them.
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
				errs = append(errs, fmt.Errorf("the cache of %s is not filled yet: see the manager's log for why it cannot be listed", kind))
			}
		}
		return errors.Join(errs...)
	}
}
