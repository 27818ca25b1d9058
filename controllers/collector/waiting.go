package collector

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pause"
)

// A Collector that waits for a place is called when one becomes free. Until then its passes read nothing from the API server: to read and
// verify one takes up to 512 KiB and some milliseconds, and a thousand may wait.

const (
	// callTime is how long a place is kept for a Collector that was called.
	callTime = time.Minute
	// callDelay between two looks for free places by Collectors that wait. Jobs that end are looked at without it.
	callDelay = time.Second
)

// waiter is a Collector that waits.
type waiter struct {
	version version
	// namespace of the release.
	namespace string
	// number of its arrival.
	number uint64
	// called is when it was called; zero before.
	called time.Time
}

// version changes when a Collector changes in a way that needs a pass.
type version struct {
	uid          types.UID
	generation   int64
	stamp, retry string
	deleting     bool
}

// versionOf returns the version of a Collector of the cache.
func versionOf(c *sondev1.Collector) version {
	return version{c.UID, c.Generation, c.Annotations[sondev1.AnnotationStamp], c.Annotations[sondev1.AnnotationRetry], !c.DeletionTimestamp.IsZero()}
}

// isCalled reports whether a place is kept for a waiter.
func (w *waiter) isCalled(now time.Time) bool {
	return !w.called.IsZero() && now.Sub(w.called) < callTime
}

// waits reports whether a Collector of the cache still waits, so that its pass would change nothing.
func (r *Reconciler) waits(ctx context.Context, c *sondev1.Collector) (bool, error) {
	paused, err := pause.Requested(ctx, r.PauseConfig, r.Namespace)
	if err != nil || paused { // the status has to say so
		return false, err
	}
	p, key := &r.places, client.ObjectKeyFromObject(c)
	if w := p.waiter(key); w == nil || w.version != versionOf(c) {
		return false, nil
	}
	if p.isCallDue(r.Clock.Now()) { // the place of a Job beyond its deadline becomes free without an event
		if err := r.callNext(ctx); err != nil {
			return false, err
		}
	}
	w := p.waiter(key)
	return w != nil && !w.isCalled(r.Clock.Now()), nil
}

func (p *places) isCallDue(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Sub(p.looked) >= callDelay
}

// waiter returns a copy; nil if the Collector does not wait.
func (p *places) waiter(key types.NamespacedName) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, ok := p.waiting[key]; ok {
		return new(*w)
	}
	return nil
}

// settle records whether a Collector of the cache waits after its pass. It keeps its turn.
func (p *places) settle(c *sondev1.Collector, waits bool) {
	key := client.ObjectKeyFromObject(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.waiting[key]
	delete(p.waiting, key)
	if !waits {
		return
	}
	if p.waiting == nil {
		p.waiting = map[types.NamespacedName]*waiter{}
	}
	p.arrivals++
	w := &waiter{version: versionOf(c), namespace: c.ReleaseNamespace(), number: p.arrivals}
	if before != nil && before.version.uid == c.UID {
		w.number = before.number
	}
	p.waiting[key] = w
}

// forget removes a Collector that is gone.
func (p *places) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, key)
}

// callNext wakes the Collectors that free places are for.
func (r *Reconciler) callNext(ctx context.Context) error {
	p := &r.places
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		return nil
	}
	if err := r.refreshPlaces(ctx); err != nil {
		return err
	}
	now := r.Clock.Now()
	p.looked = now
	for {
		key, next := p.next(now)
		if next == nil {
			return nil
		}
		next.called = now
		r.enqueue(reconcile.Request{NamespacedName: key})
	}
}

// next returns the Collector that the next free place is for: of those that may run, one in the namespace with the fewest, and of these
// the one that has waited longest. It returns nil if none may run.
func (p *places) next(now time.Time) (key types.NamespacedName, next *waiter) {
	running, by := p.count("", now)
	if running >= maxRunning {
		return key, nil
	}
	for k, w := range p.waiting {
		if !w.called.IsZero() && !w.isCalled(now) { // it did not come: others first
			p.arrivals++
			w.number, w.called = p.arrivals, time.Time{}
		}
		if w.isCalled(now) || isFull(running, by[w.namespace]) {
			continue
		}
		if next == nil || by[w.namespace] < by[next.namespace] || by[w.namespace] == by[next.namespace] && w.number < next.number {
			key, next = k, w
		}
	}
	return key, next
}

// jobChanged wakes the Collectors that wait, if the Job of a place has ended or is gone, and its own.
func (r *Reconciler) jobChanged(ctx context.Context, o client.Object) []reconcile.Request {
	if job, ok := o.(*batchv1.Job); ok && r.places.has(job) {
		if err := r.callNext(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Calling Collectors that wait failed")
		}
	}
	return r.ownerOf(ctx, o)
}

// has reports whether a Job has a place.
func (p *places) has(job *batchv1.Job) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, taken := range p.taken {
		if taken.job == job.Name && taken.namespace == job.Namespace {
			return true
		}
	}
	return false
}
