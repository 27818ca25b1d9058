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
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/kind"
)

var (
	// ErrDeleted says that the capture was deleted while it was followed.
	ErrDeleted = errors.New("it was deleted together with its results")
	// ErrNotServed says that the API server has not served the kind, which follows in the text, for a while. The capture may still exist.
	ErrNotServed = errors.New("for 30 s the API server has not served")
)

// Follower follows one capture until it has ended.
type Follower struct {
	Client client.WithWatch
	// Progress streams live counts until all Pods have ended (results.Client.Progress).
	Progress func(ctx context.Context, each func(results.Update)) error
	// OnUpdate, if not nil, is called with each of these counts.
	OnUpdate func(results.Update)
	Display  live.Display
	Clock    clock.WithTicker
	// Stop sets spec.stop when it is closed. It may be nil.
	Stop <-chan struct{}
	// Refresh is the time between two frames. Retry is the time between two attempts after an error.
	Refresh time.Duration
	Retry   time.Duration
}

// message is sent from the watchers to the loop of Follow. One of its fields is set.
type message struct {
	capture       v1alpha1.Capture
	update        *results.Update
	progressError string
	notice        string
	err           error
}

// Follow updates and shows s until the capture has ended. The error is the cause of ctx, ErrDeleted, ErrNotServed, or the
// refusal of the API server to let the user read the capture.
func (f *Follower) Follow(ctx context.Context, s *State) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	messages := make(chan message)
	send := func(m message) {
		select {
		case messages <- m:
		case <-ctx.Done():
		}
	}
	key, k := client.ObjectKeyFromObject(s.Capture), traitsOf(s.Capture).kind
	uid := s.Capture.GetUID()
	running.Go(func() { f.watch(ctx, k, key, uid, send) })
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
			running.Go(func() { f.stream(ctx, send) })
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-frames.C():
			f.Display.Show(s.View(f.Clock.Now()))
		case <-stop:
			stop = nil
			running.Go(func() { f.stop(ctx, k, key, uid, send) })
		case m := <-messages:
			if m.err != nil {
				return m.err
			}
			f.apply(s, m)
		}
	}
}

func (f *Follower) apply(s *State, m message) {
	switch {
	case m.capture != nil:
		s.Capture = m.capture
	case m.update != nil:
		s.Update(*m.update)
		if f.OnUpdate != nil {
			f.OnUpdate(*m.update)
		}
	case m.progressError != "":
		s.ProgressError = m.progressError
	case m.notice != "":
		f.Display.PrintLine(m.notice)
	}
}

// watch sends every state of the capture, and watches again when a watch ends.
func (f *Follower) watch(ctx context.Context, k kind.Capture, key client.ObjectKey, uid types.UID, send func(message)) {
	var served gone.Kind
	for ctx.Err() == nil {
		read, err := f.watchOnce(ctx, k, key, uid, send)
		if read {
			served = gone.Kind{}
		}
		switch {
		case !read && served.Note(err, f.Clock.Now()):
			send(message{err: fmt.Errorf("%w %ss", ErrNotServed, k.Name)})
			return
		case errors.Is(err, ErrDeleted), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			send(message{err: err})
			return
		}
		f.pause(ctx)
	}
}

// watchOnce reports whether the capture could be read. It ends with ErrDeleted also if another capture has the name now: while no watch was
// open, this one was deleted.
func (f *Follower) watchOnce(ctx context.Context, k kind.Capture, key client.ObjectKey, uid types.UID, send func(message)) (read bool, err error) {
	first := k.New()
	err = f.Client.Get(ctx, key, first)
	if gone.Is(err) || err == nil && first.GetUID() != uid {
		return false, fmt.Errorf("%s %s: %w", k.Name, key.Name, ErrDeleted)
	}
	if err != nil {
		return false, err
	}
	send(message{capture: first})
	w, err := f.Client.Watch(ctx, k.NewList(), client.InNamespace(key.Namespace), &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name), Raw: listFrom(first.GetResourceVersion()),
	})
	if err != nil {
		return true, fmt.Errorf("watch %s %s: %w", k.Name, key.Name, err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, context.Cause(ctx)
		case e, open := <-w.ResultChan():
			observed, ok := e.Object.(v1alpha1.Capture)
			switch {
			case !open:
				return true, nil
			case !ok || observed.GetName() != key.Name:
			case e.Type == watch.Deleted, observed.GetUID() != uid:
				return true, fmt.Errorf("%s %s: %w", k.Name, key.Name, ErrDeleted)
			default:
				send(message{capture: observed})
			}
		}
	}
}

// stream sends the live counts, or the reason why there are none. The status does not depend on them.
func (f *Follower) stream(ctx context.Context, send func(message)) {
	for ctx.Err() == nil {
		err := f.Progress(ctx, func(u results.Update) { send(message{update: &u}) })
		if err != nil {
			send(message{progressError: err.Error()})
		}
		f.pause(ctx)
	}
}

// stop sets spec.stop. It retries until the API server accepts or refuses, because the user has no other way to stop.
func (f *Follower) stop(ctx context.Context, k kind.Capture, key client.ObjectKey, uid types.UID, send func(message)) {
	send(message{notice: "Stopping and saving what was captured. Press Ctrl-C again to exit at once."})
	for ctx.Err() == nil {
		c := k.New()
		c.SetNamespace(key.Namespace)
		c.SetName(key.Name)
		c.SetUID(uid)
		err := SetStop(ctx, f.Client, c)
		if err == nil || ctx.Err() != nil {
			return
		}
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || gone.Is(err) {
			send(message{notice: "The capture was not stopped: " + plain(err.Error())})
			return
		}
		send(message{notice: "Stopping failed and will be retried: " + plain(err.Error())})
		f.pause(ctx)
	}
}

// SetStop sets spec.stop of the capture with the same kind, namespace and name, and reads the result into capture. If capture has a UID,
// the API server refuses to stop a later one of its name.
func SetStop(ctx context.Context, c client.Client, capture v1alpha1.Capture) error {
	name, patch := capture.GetName(), []byte(`{"spec":{"stop":true}}`)
	if uid := capture.GetUID(); uid != "" {
		patch = fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"stop":true}}`, uid)
	}
	if err := c.Patch(ctx, capture, client.RawPatch(types.MergePatchType, patch)); err != nil {
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
