package capture

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/kind"
)

// ErrDeleted says that somebody deleted the capture while it was followed.
var ErrDeleted = errors.New("it was deleted, and its results with it")

// Follower follows one capture until it has ended.
type Follower struct {
	Client client.WithWatch
	// Progress streams live counts until all Pods have ended (results.Client.Progress).
	Progress func(ctx context.Context, each func(results.Update)) error
	// Heard, if not nil, is told each of these counts.
	Heard   func(results.Update)
	Display live.Display
	Clock   clock.WithTicker
	// Stop, when it is closed, sets spec.stop. It may be nil.
	Stop <-chan struct{}
	// Refresh is the time between two frames, Retry that between two attempts after an error.
	Refresh time.Duration
	Retry   time.Duration
}

// news is what the watchers tell the loop: one of its fields is set.
type news struct {
	capture v1alpha1.Capture
	update  *results.Update
	trouble string
	said    string
	err     error
}

// Follow shows s until the capture has ended, and keeps it up to date. The error is that of ctx,
// ErrDeleted, or the API server's refusal to let the capture be read.
func (f *Follower) Follow(ctx context.Context, s *State) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	c := make(chan news)
	tell := func(n news) {
		select {
		case c <- n:
		case <-ctx.Done():
		}
	}
	key, k := client.ObjectKeyFromObject(s.Capture), traitsOf(s.Capture).kind
	running.Go(func() { f.watch(ctx, k, key, tell) })
	stop, streaming := f.Stop, false
	frames := f.Clock.NewTicker(f.Refresh)
	defer frames.Stop()
	for {
		if s.Ended() {
			f.Display.Show(s.View(f.Clock.Now()))
			return nil
		}
		if !streaming && len(s.Capture.CaptureStatus().Pods) > 0 {
			streaming = true
			running.Go(func() { f.stream(ctx, tell) })
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-frames.C():
			f.Display.Show(s.View(f.Clock.Now()))
		case <-stop:
			stop = nil
			running.Go(func() { f.stop(ctx, k, key, tell) })
		case n := <-c:
			if n.err != nil {
				return n.err
			}
			f.take(s, n)
		}
	}
}

func (f *Follower) take(s *State, n news) {
	switch {
	case n.capture != nil:
		s.Capture = n.capture
	case n.update != nil:
		s.Update(*n.update)
		if f.Heard != nil {
			f.Heard(*n.update)
		}
	case n.trouble != "":
		s.Trouble = n.trouble
	case n.said != "":
		f.Display.Say(n.said)
	}
}

// watch tells every state of the capture, and starts again where a watch breaks.
func (f *Follower) watch(ctx context.Context, k kind.Capture, key client.ObjectKey, tell func(news)) {
	for ctx.Err() == nil {
		err := f.watchOnce(ctx, k, key, tell)
		if errors.Is(err, ErrDeleted) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			tell(news{err: err})
			return
		}
		f.pause(ctx)
	}
}

func (f *Follower) watchOnce(ctx context.Context, k kind.Capture, key client.ObjectKey, tell func(news)) error {
	first := k.New()
	if err := f.Client.Get(ctx, key, first); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%s %s: %w", k.Name, key.Name, ErrDeleted)
		}
		return err
	}
	tell(news{capture: first})
	w, err := f.Client.Watch(ctx, k.NewList(), client.InNamespace(key.Namespace), &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name), Raw: listFrom(first.GetResourceVersion()),
	})
	if err != nil {
		return fmt.Errorf("watch %s %s: %w", k.Name, key.Name, err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e, open := <-w.ResultChan():
			seen, ok := e.Object.(v1alpha1.Capture)
			switch {
			case !open:
				return nil
			case !ok || seen.GetName() != key.Name:
			case e.Type == watch.Deleted:
				return fmt.Errorf("%s %s: %w", k.Name, key.Name, ErrDeleted)
			default:
				tell(news{capture: seen})
			}
		}
	}
}

// stream tells the live counts, and says so while there are none: the status goes on without them.
func (f *Follower) stream(ctx context.Context, tell func(news)) {
	for ctx.Err() == nil {
		err := f.Progress(ctx, func(u results.Update) { tell(news{update: &u}) })
		if err != nil {
			tell(news{trouble: err.Error()})
		}
		f.pause(ctx)
	}
}

// stop asks for the end, again and again unless it was refused, as the user has no other means.
func (f *Follower) stop(ctx context.Context, k kind.Capture, key client.ObjectKey, tell func(news)) {
	tell(news{said: "Stopping; what was captured is saved. Ctrl-C once more leaves at once."})
	for ctx.Err() == nil {
		c := k.New()
		c.SetNamespace(key.Namespace)
		c.SetName(key.Name)
		err := SetStop(ctx, f.Client, c)
		if err == nil || ctx.Err() != nil {
			return
		}
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
			tell(news{said: "The capture goes on: " + plain(err.Error())})
			return
		}
		tell(news{said: "Stopping failed, trying again: " + plain(err.Error())})
		f.pause(ctx)
	}
}

// SetStop sets spec.stop of the capture of that kind, namespace and name, and reads all else into it.
func SetStop(ctx context.Context, c client.Client, capture v1alpha1.Capture) error {
	name := capture.GetName()
	if err := c.Patch(ctx, capture, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"stop":true}}`))); err != nil {
		return fmt.Errorf("stop %s %s: %w", capture.KindName(), name, err)
	}
	return nil
}

func (f *Follower) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-f.Clock.After(f.Retry):
	}
}

func listFrom(resourceVersion string) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: resourceVersion}
}
