// Package podwatch knows when the manager did not watch the cluster's Pods: before it started, and when its watch was interrupted
// for so long that it had to list the Pods again. A Pod that is created and gone again in such a gap is never observed.
package podwatch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// margin is how much earlier a gap may have begun than known. A leader that is killed has not yet written what its watch
	// observed during its last pass, which may wait 20 s for keepers, and events are on their way for a moment.
	margin = 30 * time.Second
	// maxGaps bounds the gaps that are kept.
	maxGaps = 16
)

// Watch records the gaps.
type Watch struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// observed is until when the changes of all Pods have reached this manager, or the leader before it.
	observed time.Time
	gaps     []Gap
}

// Gap is a time in which Pods were not watched. From is zero if it is not known.
type Gap struct{ From, To time.Time }

// LastLed returns when a leader last renewed the lease; zero if there is no lease.
func LastLed(ctx context.Context, live client.Reader, lease client.ObjectKey) (time.Time, error) {
	var l coordinationv1.Lease
	if err := live.Get(ctx, lease, &l); client.IgnoreNotFound(err) != nil {
		return time.Time{}, fmt.Errorf("get lease %s: %w", lease, err)
	}
	if l.Spec.RenewTime == nil {
		return time.Time{}, nil
	}
	return l.Spec.RenewTime.Time, nil
}

// New returns a Watch of a manager that starts. led is when an earlier leader was last known to run; zero if that is not known.
func New(c clock.PassiveClock, led time.Time) *Watch { return &Watch{clock: c, observed: led} }

// NewInformer is for cache.Options.NewInformer. It notes when the informer of Pods lists them.
func (w *Watch) NewInformer(from cache.ListerWatcher, o runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	if _, ok := o.(*corev1.Pod); ok {
		from = source{cache.ToListerWatcherWithContext(from), w}
	}
	return cache.NewSharedIndexInformer(from, o, resync, indexers)
}

// Observed notes that the watch delivers changes.
func (w *Watch) Observed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observed = w.clock.Now()
}

// Listed notes that the Pods were listed: what happened since the last change is not known.
func (w *Watch) Listed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap := Gap{w.observed, w.clock.Now()}
	if gap.From.Round(0).After(gap.To.Round(0)) { // the clock was set back, or the earlier leader's is ahead: the beginning is not known
		gap.From = time.Time{}
	}
	if !gap.From.IsZero() {
		gap.From = gap.From.Add(-margin)
	}
	if last := len(w.gaps) - 1; last >= 0 && !w.gaps[last].To.Before(gap.From) {
		gap.From, w.gaps = earlier(w.gaps[last].From, gap.From), w.gaps[:last]
	}
	w.observed = gap.To
	if w.gaps = append(w.gaps, gap); len(w.gaps) > maxGaps {
		w.gaps[1].From = w.gaps[0].From
		w.gaps = w.gaps[1:]
	}
}

// Gaps returns the gaps so far, the oldest first.
func (w *Watch) Gaps() []Gap {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.gaps)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// source reads Pods from the API server.
type source struct {
	cache.ListerWatcherWithContext
	watch *Watch
}

// List implements cache.ListerWatcher.
func (s source) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// Watch implements cache.ListerWatcher.
func (s source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// ListWithContext implements cache.ListerWatcherWithContext.
func (s source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := s.ListerWatcherWithContext.ListWithContext(ctx, options)
	if err == nil {
		s.watch.Listed()
	}
	return list, err
}

// WatchWithContext implements cache.ListerWatcherWithContext. A watch may begin with all Pods, as a list. Otherwise it continues
// where the watch before it ended. If the API server does not have the changes since then any more, it accepts the watch, too, and
// sends an error as the first event. So only an event shows that no change is missing.
func (s source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := s.ListerWatcherWithContext.WatchWithContext(ctx, options)
	switch {
	case err != nil:
		return events, err
	case options.SendInitialEvents != nil && *options.SendInitialEvents:
		s.watch.Listed()
		listed := false
		return continued(events, func(e watch.Event) {
			switch {
			case listed:
				s.watch.Observed()
			case endsInitialEvents(e):
				// The reflector hands on the Pods only now. A Pod that was deleted since the list began is not among them, and nobody learns of it.
				s.watch.Listed()
				listed = true
			}
		}), nil
	default:
		return continued(events, func(watch.Event) { s.watch.Observed() }), nil
	}
}

// endsInitialEvents reports whether an event is the bookmark after all Pods of a watch that begins with them.
func endsInitialEvents(e watch.Event) bool {
	if e.Type != watch.Bookmark {
		return false
	}
	o, err := apimeta.Accessor(e.Object)
	return err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// continuedWatch calls a function at each event, bookmarks included, that is no error.
type continuedWatch struct {
	watch.Interface
	events chan watch.Event
	stop   chan struct{}
	once   sync.Once
}

func continued(from watch.Interface, observed func(watch.Event)) *continuedWatch {
	w := &continuedWatch{Interface: from, events: make(chan watch.Event), stop: make(chan struct{})}
	go w.forward(observed)
	return w
}

// forward ends when the watch does, or is stopped.
func (w *continuedWatch) forward(observed func(watch.Event)) {
	defer close(w.events)
	for event := range w.Interface.ResultChan() {
		if event.Type != watch.Error {
			observed(event)
		}
		select {
		case w.events <- event:
		case <-w.stop:
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (w *continuedWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *continuedWatch) Stop() {
	w.once.Do(func() { close(w.stop) })
	w.Interface.Stop()
}
