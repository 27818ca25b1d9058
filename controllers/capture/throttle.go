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

// A pass costs what a capture has Pods, and so does a status; each of those Pods causes some ten events. So what
// follows from events waits for the next ones, in proportion to the Pods: of up to freely of them nothing waits.
const (
	freely       = 10
	passForEach  = 10 * time.Millisecond
	passAtMost   = time.Second
	writeForEach = 50 * time.Millisecond
	writeAtMost  = 5 * time.Second
)

// pace spreads the passes and the writes of large captures. It is no state that a decision rests on: what is
// forgotten costs a pass, or a write.
type pace struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	known map[types.NamespacedName]paced
}

type paced struct {
	pods int
	// pass is when the last pass began, or the next one is due; write is when the status was last written.
	pass, write time.Time
}

func newPace(c clock.PassiveClock) *pace {
	return &pace{clock: c, known: map[types.NamespacedName]paced{}}
}

// began is told of each pass.
func (p *pace) began(key types.NamespacedName) {
	p.change(key, func(k *paced, now time.Time) { k.pass = now })
}

// wrote is told of each write of a status.
func (p *pace) wrote(key types.NamespacedName) {
	p.change(key, func(k *paced, now time.Time) { k.write = now })
}

// forget what is not there any more.
func (p *pace) forget(key types.NamespacedName) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, key)
}

func (p *pace) change(key types.NamespacedName, to func(k *paced, now time.Time)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.known[key]
	to(&k, p.clock.Now())
	p.known[key] = k
}

// wait is how long a pass that an event asks for is to wait for further ones.
func (p *pace) wait(key types.NamespacedName) (left time.Duration) {
	p.change(key, func(k *paced, now time.Time) {
		if !now.Before(k.pass) { // else one is due, and this event with it
			k.pass = later(now, k.pass.Add(spread(k.pods, passForEach, passAtMost)))
		}
		left = k.pass.Sub(now)
	})
	return left
}

// hold is how long a write that nobody waits for is to wait for further changes.
func (p *pace) hold(key types.NamespacedName, pods int) (left time.Duration) {
	p.change(key, func(k *paced, now time.Time) {
		k.pods = pods
		left = k.write.Add(spread(pods, writeForEach, writeAtMost)).Sub(now)
	})
	return max(left, 0)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func spread(pods int, each, most time.Duration) time.Duration {
	if pods <= freely {
		return 0
	}
	return min(time.Duration(pods)*each, most)
}

// paced asks for the passes that wake names, each after its wait.
func (r *Reconciler) paced(wake handler.MapFunc) handler.EventHandler {
	ask := func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request], objects ...client.Object) {
		asked := map[reconcile.Request]bool{}
		for _, o := range objects {
			for _, req := range wake(ctx, o) {
				if !asked[req] {
					asked[req] = true
					q.AddAfter(req, r.pace.wait(req.NamespacedName))
				}
			}
		}
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { ask(ctx, q, e.Object) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { ask(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { ask(ctx, q, e.Object) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { ask(ctx, q, e.Object) },
	}
}

// awaited reports whether somebody waits for what the status now says, or it must be written before something that
// was seen is gone. All else is counts, which may be some seconds old: their source is the Jobs and their Pods, which
// stay until the status is final.
func awaited(before, capture sondev1.Capture, todo plan, done acted) bool {
	a, b := before.CaptureStatus(), capture.CaptureStatus()
	return a.Phase != b.Phase || a.ObservedGeneration != b.ObservedGeneration || a.StartTime.IsZero() != b.StartTime.IsZero() ||
		len(todo.stop)+len(todo.remove)+len(done.jobs)+len(done.errs)+len(done.lacking) > 0 || todo.leaving || !todo.observed ||
		count(a.Pods, sondev1.PhaseCapturing) == 0 && count(b.Pods, sondev1.PhaseCapturing) > 0 ||
		turned(before, capture)
}

// turned reports whether a condition has another status, or another reason for it.
func turned(before, capture sondev1.Capture) bool {
	for i := range capture.CaptureStatus().Conditions {
		c := &capture.CaptureStatus().Conditions[i]
		old := apimeta.FindStatusCondition(before.CaptureStatus().Conditions, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason {
			return true
		}
	}
	return false
}
