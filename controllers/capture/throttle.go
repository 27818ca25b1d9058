package capture

import (
	"context"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// A pass, and a write of the status, cost time in proportion to the Pods of a capture, and each Pod causes about ten events.
// So passes and writes are delayed in proportion to the Pods. Captures of up to freePods are not delayed.
const (
	freePods         = 10
	passDelayPerPod  = 10 * time.Millisecond
	maxPassDelay     = time.Second
	writeDelayPerPod = 50 * time.Millisecond
	maxWriteDelay    = 5 * time.Second
)

// maxThrottled bounds the captures that are known. A pass forgets a capture that is gone, but a replica that does not lead makes none.
const maxThrottled = 10_000

// throttle delays the passes and the status writes of large captures. No decision depends on it: losing its state costs at most
// one pass or write too many.
type throttle struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	known map[types.NamespacedName]throttleState
}

type throttleState struct {
	pods int
	// pass is when the last pass began, or the next one is due; write is when the status was last written.
	pass, write time.Time
}

func newThrottle(c clock.PassiveClock) *throttle {
	return &throttle{clock: c, known: map[types.NamespacedName]throttleState{}}
}

// passStarted records that a pass begins.
func (t *throttle) passStarted(key types.NamespacedName) {
	t.change(key, func(k *throttleState, now time.Time) { k.pass = now })
}

// statusWritten records that the status was written.
func (t *throttle) statusWritten(key types.NamespacedName) {
	t.change(key, func(k *throttleState, now time.Time) { k.write = now })
}

// forget removes a capture that is gone.
func (t *throttle) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, key)
}

func (t *throttle) change(key types.NamespacedName, update func(k *throttleState, now time.Time)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.known[key]
	if !ok && len(t.known) >= maxThrottled {
		clear(t.known)
	}
	update(&k, t.clock.Now())
	t.known[key] = k
}

// passDelay is how long the pass for an event waits, so that one pass serves several events.
func (t *throttle) passDelay(key types.NamespacedName) (left time.Duration) {
	t.change(key, func(k *throttleState, now time.Time) {
		if !now.Before(k.pass) { // otherwise a pass is due already, and serves this event too
			k.pass = later(now, k.pass.Add(delayFor(k.pods, passDelayPerPod, maxPassDelay)))
		}
		left = k.pass.Sub(now)
	})
	return left
}

// writeDelay is how long a write that is not urgent waits, so that one write serves several changes.
func (t *throttle) writeDelay(key types.NamespacedName, pods int) (left time.Duration) {
	t.change(key, func(k *throttleState, now time.Time) {
		k.pods = pods
		left = k.write.Add(delayFor(pods, writeDelayPerPod, maxWriteDelay)).Sub(now)
	})
	return max(left, 0)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func delayFor(pods int, each, most time.Duration) time.Duration {
	if pods <= freePods {
		return 0
	}
	return min(time.Duration(pods)*each, most)
}

// queue of a controller.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// throttled enqueues the requests that wake returns, each after its passDelay.
func (r *Reconciler) throttled(wake handler.MapFunc) handler.EventHandler {
	enqueue := func(ctx context.Context, q queue, objects ...client.Object) {
		enqueued := map[reconcile.Request]bool{}
		for _, o := range objects {
			for _, req := range wake(ctx, o) {
				if !enqueued[req] {
					enqueued[req] = true
					q.AddAfter(req, r.throttle.passDelay(req.NamespacedName))
				}
			}
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { enqueue(ctx, q, e.Object) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { enqueue(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { enqueue(ctx, q, e.Object) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { enqueue(ctx, q, e.Object) },
	}
}

// urgent reports whether the status must be written now: clients wait for its change of a phase or a condition, or the object
// that the change was read from is being deleted. Counts may be some seconds old: their Jobs and Pods stay until the status
// is final.
func urgent(before, capture sondev1.Capture, planned plan, done actions) bool {
	a, b := before.CaptureStatus(), capture.CaptureStatus()
	return a.Phase != b.Phase || a.ObservedGeneration != b.ObservedGeneration || a.StartTime.IsZero() != b.StartTime.IsZero() ||
		len(planned.stop)+len(planned.remove)+len(done.jobs)+len(done.errs)+len(done.missing) > 0 || planned.deleting || !planned.valid ||
		count(a.Pods, sondev1.PhaseCapturing) == 0 && count(b.Pods, sondev1.PhaseCapturing) > 0 ||
		conditionChanged(before, capture)
}

// conditionChanged reports whether a condition has a new status or a new reason.
func conditionChanged(before, capture sondev1.Capture) bool {
	for i := range capture.CaptureStatus().Conditions {
		c := &capture.CaptureStatus().Conditions[i]
		old := apimeta.FindStatusCondition(before.CaptureStatus().Conditions, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason {
			return true
		}
	}
	return false
}
