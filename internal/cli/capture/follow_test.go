package capture

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/kind"
)

// shown records the text of a display, and lets tests wait for a text.
type shown struct {
	mu   sync.Mutex
	seen []string
	wake chan struct{}
}

func newShown() *shown { return &shown{wake: make(chan struct{}, 1)} }

func (s *shown) add(text string) {
	s.mu.Lock()
	s.seen = append(s.seen, text)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *shown) Show(v live.View)      { s.add(strings.Join(live.Lines(v, 0, 0), "\n")) }
func (s *shown) PrintLine(line string) { s.add(line) }
func (s *shown) Close()                {}

func (s *shown) Print(_ io.Writer, text []byte) error {
	s.add(string(text))
	return nil
}

// await waits until text was shown.
func (s *shown) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		seen := slices.Clone(s.seen)
		s.mu.Unlock()
		if slices.ContainsFunc(seen, func(l string) bool { return strings.Contains(l, text) }) {
			return
		}
		select {
		case <-s.wake:
		case <-deadline:
			t.Fatalf("%q was not shown, but\n%s", text, strings.Join(seen, "\n---\n"))
		}
	}
}

type followed struct {
	follower *Follower
	client   client.WithWatch
	shown    *shown
	stop     chan struct{}
	state    *State
	ended    chan error
	// watching is closed when a watch is open. The fake client does not replay earlier events.
	watching chan struct{}
}

func follow(t *testing.T, pc *v1alpha1.PacketCapture, progress func(context.Context, func(results.Update)) error, funcs interceptor.Funcs) *followed {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(pc.DeepCopy()).WithStatusSubresource(pc).Build()
	d := newShown()
	f := &followed{client: c, shown: d, stop: make(chan struct{}), state: NewState(pc, time.Now()), ended: make(chan error, 1), watching: make(chan struct{})}
	watchFunc, opened := funcs.Watch, sync.OnceFunc(func() { close(f.watching) })
	funcs.Watch = func(ctx context.Context, c client.WithWatch, l client.ObjectList, o ...client.ListOption) (w watch.Interface, err error) {
		if watchFunc != nil {
			w, err = watchFunc(ctx, c, l, o...)
		} else {
			w, err = c.Watch(ctx, l, o...)
		}
		if err == nil {
			opened()
		}
		return w, err
	}
	f.follower = &Follower{
		Client: interceptor.NewClient(c, funcs), Progress: progress, Display: d, Clock: clock.RealClock{},
		Stop: f.stop, Refresh: 5 * time.Millisecond, Retry: 5 * time.Millisecond,
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { f.ended <- f.follower.Follow(ctx, f.state) }()
	return f
}

func (f *followed) set(t *testing.T, change func(*v1alpha1.PacketCapture)) {
	t.Helper()
	<-f.watching
	pc := &v1alpha1.PacketCapture{}
	if err := f.client.Get(t.Context(), client.ObjectKeyFromObject(running()), pc); err != nil {
		t.Fatal(err)
	}
	change(pc)
	if err := f.client.Status().Update(t.Context(), pc); err != nil {
		t.Fatal(err)
	}
}

func (f *followed) await(t *testing.T) error {
	t.Helper()
	select {
	case err := <-f.ended:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("Follow does not return")
		return nil
	}
}

func silent(ctx context.Context, _ func(results.Update)) error {
	<-ctx.Done()
	return ctx.Err()
}

func fresh() *v1alpha1.PacketCapture {
	pc := running()
	pc.Status = v1alpha1.CaptureStatus{}
	return pc
}

var onePod = []v1alpha1.PodResult{{UID: "u1", Name: "web-1", Phase: v1alpha1.PhaseCapturing}}

func TestFollowShowsStatusAndLiveCountsUntilTheEnd(t *testing.T) {
	f := follow(t, fresh(), func(ctx context.Context, each func(results.Update)) error {
		each(results.Update{Pod: "web-1", UID: "u1", Phase: v1alpha1.PhaseCapturing, Account: counts(42, 42)})
		<-ctx.Done()
		return ctx.Err()
	}, interceptor.Funcs{})
	f.shown.await(t, "Waiting for the operator")
	f.set(t, func(pc *v1alpha1.PacketCapture) {
		pc.Status.Phase, pc.Status.Pods = v1alpha1.PhaseCapturing, onePod
	})
	f.shown.await(t, "42")
	f.set(t, func(pc *v1alpha1.PacketCapture) { pc.Status.Phase = v1alpha1.PhaseCompleted })
	if err := f.await(t); err != nil {
		t.Fatal(err)
	}
	if !f.state.Ended() {
		t.Error("the state does not say that it has ended")
	}
	f.shown.await(t, "Completed")
}

func TestFollowGoesOnWithoutLiveCounts(t *testing.T) {
	f := follow(t, running(onePod...), func(context.Context, func(results.Update)) error {
		return errors.New("the operator is not ready")
	}, interceptor.Funcs{})
	f.shown.await(t, "Live counts are not available: the operator is not ready")
	f.set(t, func(pc *v1alpha1.PacketCapture) { pc.Status.Phase = v1alpha1.PhaseFailed })
	if err := f.await(t); err != nil {
		t.Fatal(err)
	}
}

func TestFollowSurvivesBrokenWatches(t *testing.T) {
	broken := 0
	f := follow(t, running(), silent, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, l client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
			if broken++; broken < 3 {
				return nil, errors.New("connection refused")
			}
			return c.Watch(ctx, l, o...)
		},
	})
	f.shown.await(t, "Capturing")
	f.set(t, func(pc *v1alpha1.PacketCapture) { pc.Status.Phase = v1alpha1.PhaseCompleted })
	if err := f.await(t); err != nil {
		t.Fatal(err)
	}
}

// noSuchPage is the answer of a load balancer whose API server is away.
var noSuchPage = apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "404 page not found", 0, true)

func TestFollowSurvivesAPageNotFound(t *testing.T) {
	answers := 0
	f := follow(t, running(), silent, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if answers++; answers < 3 {
				return noSuchPage
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	f.set(t, func(pc *v1alpha1.PacketCapture) { pc.Status.Phase = v1alpha1.PhaseCompleted })
	if err := f.await(t); err != nil {
		t.Fatal(err)
	}
}

// hurried is 10 s later each time it is read.
type hurried struct {
	clock.RealClock
	now time.Time
}

func (h *hurried) Now() time.Time {
	h.now = h.now.Add(10 * time.Second)
	return h.now
}

func TestFollowEndsWhereTheKindIsNotServed(t *testing.T) {
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return noSuchPage
		},
	})
	f := Follower{Client: c, Clock: &hurried{}, Retry: time.Millisecond}
	var got error
	f.watch(t.Context(), kind.PacketCapture, client.ObjectKeyFromObject(running()), "uid", func(m message) { got = m.err })
	if !errors.Is(got, ErrNotServed) || !strings.Contains(got.Error(), "for 30 s the API server has not served PacketCaptures") {
		t.Errorf("error %v, want ErrNotServed", got)
	}
}

func TestFollowEndsWithTheCapturesDeletion(t *testing.T) {
	f := follow(t, running(), silent, interceptor.Funcs{})
	<-f.watching
	if err := f.client.Delete(t.Context(), running()); err != nil {
		t.Fatal(err)
	}
	if err := f.await(t); !errors.Is(err, ErrDeleted) {
		t.Errorf("error %v, want ErrDeleted", err)
	}
}

func TestFollowEndsWhereReadingIsForbidden(t *testing.T) {
	f := follow(t, running(), silent, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("packetcaptures").GroupResource(), "web", errors.New("no"))
		},
	})
	if err := f.await(t); !apierrors.IsForbidden(err) {
		t.Errorf("error %v, want the API server's", err)
	}
}

func TestStop(t *testing.T) {
	tries := 0
	f := follow(t, running(), silent, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if tries++; tries == 1 {
				return errors.New("Post https://sonde-webhook/mutate-packetcapture/0011aabb: connection refused")
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	f.shown.await(t, "Capturing")
	close(f.stop)
	f.shown.await(t, "will be retried: stop PacketCapture web-x7k2p: Post https://sonde-webhook/...: connection refused")
	f.shown.await(t, "(Deployment/web)  Stopping")
	f.set(t, func(pc *v1alpha1.PacketCapture) {
		if !pc.Spec.Stop {
			t.Error("spec.stop is not set")
		}
		pc.Status.Phase = v1alpha1.PhaseCompleted
	})
	if err := f.await(t); err != nil {
		t.Fatal(err)
	}
}

// Each kind is read, watched and stopped as that kind.
func TestFollowATrace(t *testing.T) {
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	trace := &v1alpha1.Trace{}
	trace.Namespace, trace.Name, trace.Status.Phase = "shop", "web-x7k2p", v1alpha1.PhaseCapturing
	watching := make(chan struct{})
	opened := sync.OnceFunc(func() { close(watching) })
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(trace.DeepCopy()).WithStatusSubresource(trace).WithInterceptorFuncs(interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, l client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
			defer opened()
			return c.Watch(ctx, l, o...)
		},
	}).Build()
	d, stop, ended := newShown(), make(chan struct{}), make(chan error, 1)
	state := NewState(trace, time.Now())
	follower := &Follower{
		Client: c, Progress: silent, Display: d, Clock: clock.RealClock{}, Stop: stop, Refresh: 5 * time.Millisecond, Retry: 5 * time.Millisecond,
	}
	go func() { ended <- follower.Follow(t.Context(), state) }()
	<-watching
	close(stop)
	d.await(t, "shop/web-x7k2p  Stopping")
	over := &v1alpha1.Trace{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(trace), over); err != nil {
		t.Fatal(err)
	}
	over.Status.Phase = v1alpha1.PhaseCompleted
	if err := c.Status().Update(t.Context(), over); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || !over.Spec.Stop || !state.Ended() {
		t.Errorf("ended %t with %v, stop is %t", state.Ended(), err, over.Spec.Stop)
	}
}

func TestStopForbidden(t *testing.T) {
	f := follow(t, running(), silent, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("packetcaptures").GroupResource(), "web", errors.New("no"))
		},
	})
	close(f.stop)
	f.shown.await(t, "The capture was not stopped")
	f.set(t, func(pc *v1alpha1.PacketCapture) { pc.Status.Phase = v1alpha1.PhaseCompleted })
	if err := f.await(t); err != nil {
		t.Fatal(err)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	f := follow(t, running(onePod...), silent, interceptor.Funcs{})
	ended := make(chan error, 1)
	go func() { ended <- f.follower.Follow(ctx, NewState(running(onePod...), time.Now())) }()
	f.shown.await(t, "Capturing")
	cancel(interrupted)
	select {
	case err := <-ended:
		if !errors.Is(err, interrupted) {
			t.Errorf("error %v, want %v", err, interrupted)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Follow does not return")
	}
}
