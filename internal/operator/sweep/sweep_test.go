package sweep_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

const (
	operatorNamespace = "sonde-system"
	captureUID        = types.UID("c0ffee00-1111-4222-8333-444455556666")
)

// world is a cluster with one capture, its Job, its ConfigMap and its Secret.
type world struct {
	t       *testing.T
	client  client.Client
	clock   *clocktesting.FakeClock
	sweeper *sweep.Sweeper
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, sondev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	options := agentjob.Options{Namespace: operatorNamespace}
	configMap, err := agentjob.ConfigMap(options, capture(), "shop-web", captureconfig.Config{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "uid-web-1"}}
	b := fake.NewClientBuilder().WithScheme(s).WithObjects(
		capture(), configMap, agentjob.Secret(options, capture(), "shop-web-keeper", nil),
		agentjob.Job(options, capture(), agentjob.Plan{Name: "web-1-qwer", Pod: pod}),
	)
	for _, i := range target.Indexes {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	w := &world{t: t, client: b.Build(), clock: clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	w.sweeper = &sweep.Sweeper{
		Client: w.client, Live: w.client, Clock: w.clock, Interval: time.Minute, Namespace: operatorNamespace,
		Watchdog: &health.Watchdog{Limit: time.Minute, Clock: w.clock},
	}
	return w
}

func capture() *sondev1.PacketCapture {
	return &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Name: "pc", Namespace: "shop", UID: captureUID}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "web"},
	}
}

// remove deletes the capture.
func (w *world) remove() {
	w.t.Helper()
	if err := w.client.Delete(w.t.Context(), capture()); err != nil {
		w.t.Fatal(err)
	}
}

// left returns the names of the objects in the operator's namespace.
func (w *world) left() []string {
	w.t.Helper()
	var names []string
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}} {
		if err := w.client.List(w.t.Context(), list, client.InNamespace(operatorNamespace)); err != nil {
			w.t.Fatal(err)
		}
		err := apimeta.EachListItem(list, func(o runtime.Object) error {
			names = append(names, o.(client.Object).GetName())
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return names
}

// TestAllWithoutTheKind checks that a sweep after the deletion of the CRDs needs several 404s before it deletes objects.
func TestAllWithoutTheKind(t *testing.T) {
	const noSuchPage, all = "404 page not found", 3
	gone := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", noSuchPage, 0, true)
	for name, tc := range map[string]struct {
		answers []error // every 15 s
		want    int     // objects left
	}{
		"for good":              {[]error{gone, gone, gone}, 0},
		"with different errors": {[]error{&apimeta.NoKindMatchError{}, gone, gone}, 0},
		"for a moment":          {[]error{gone, gone, nil, gone, gone}, all},
		"no connection":         {[]error{gone, gone, errors.New("no connection")}, all},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.sweeper
			s.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{ // the cache has no captures either
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if _, ok := list.(*sondev1.PacketCaptureList); ok {
						return nil
					}
					return c.List(ctx, list, opts...)
				},
			})
			for _, answer := range tc.answers {
				s.Live = failing(w, func(list client.ObjectList) error { return ifCaptures(list, answer) })
				err := s.All(t.Context())
				if deleted := len(w.left()) == 0; deleted != (err == nil) && answer != nil {
					t.Errorf("deleted: %v, error %v", deleted, err)
				}
				w.clock.Step(sweep.RetryDelay)
			}
			if got := len(w.left()); got != tc.want {
				t.Errorf("%d objects are left, want %d", got, tc.want)
			}
		})
	}
}

// TestAllWithoutAnAnswer checks that a sweep deletes nothing while the API server does not answer.
func TestAllWithoutAnAnswer(t *testing.T) {
	boom := errors.New("no connection")
	for name, fail := range map[string]func(client.ObjectList) error{
		"captures": func(list client.ObjectList) error { return ifCaptures(list, boom) },
		"objects":  func(client.ObjectList) error { return boom },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.remove()
			s := w.sweeper
			s.Live = failing(w, fail)
			if name == "objects" {
				s.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
					List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return boom },
				})
			}
			if err := s.All(t.Context()); !errors.Is(err, boom) || len(w.left()) != 3 {
				t.Errorf("left %v, error %v: want everything, and %v", w.left(), err, boom)
			}
		})
	}
}

func TestSweeperRuns(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	swept := make(chan struct{}, 8)
	s := w.sweeper
	s.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if list.GetObjectKind().GroupVersionKind().Kind == "SecretList" {
				swept <- struct{}{}
			}
			return c.List(ctx, list, opts...)
		},
	})
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	<-swept // at start
	if err := wait.PollUntilContextCancel(t.Context(), time.Millisecond, true, func(context.Context) (bool, error) {
		return w.clock.HasWaiters(), nil
	}); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(s.Interval)
	<-swept // on the timer
	cancel()
	if err := <-ended; err != nil || !s.NeedLeaderElection() {
		t.Errorf("Start ended with %v, needs the lead: %v", err, s.NeedLeaderElection())
	}
}

// TestAllThatHangs checks that a sweep has a deadline, and that the watchdog notices it before.
func TestAllThatHangs(t *testing.T) {
	w := newWorld(t)
	w.remove()
	s := w.sweeper
	s.Watchdog = &health.Watchdog{Limit: time.Minute, Clock: w.clock}
	s.Live = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("a sweep has no deadline")
			}
			w.clock.Step(2 * time.Minute)
			if err := s.Watchdog.Check(nil); err == nil || !strings.Contains(err.Error(), "sweeper") {
				t.Errorf("the watchdog says %v", err)
			}
			return context.DeadlineExceeded
		},
	})
	if err := s.All(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := s.Watchdog.Check(nil); err != nil {
		t.Errorf("after the end the watchdog says %v", err)
	}
}

// TestAllReadsTheCacheFirst checks that a sweep does not read the API server while the cache has all owners.
func TestAllReadsTheCacheFirst(t *testing.T) {
	w := newWorld(t)
	s := w.sweeper
	s.Live = nil // a call would panic
	if err := s.All(t.Context()); err != nil || len(w.left()) != 3 {
		t.Errorf("left %v (%v), want everything", w.left(), err)
	}
}

// TestAllReadsEveryPage checks that a sweep finds an owner on the second page that the cache does not have yet.
func TestAllReadsEveryPage(t *testing.T) {
	w := newWorld(t)
	s := w.sweeper
	asked := 0
	s.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*sondev1.PacketCaptureList); ok {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
	s.Live = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			if ifCaptures(list, errors.New("yes")) == nil {
				return c.List(ctx, list, opts...)
			}
			if asked++; o.Limit == 0 {
				t.Error("all captures are read at once")
			}
			if o.Continue == "" { // an empty page
				list.SetContinue("more")
				return nil
			}
			return c.List(ctx, list)
		},
	})
	if err := s.All(t.Context()); err != nil || asked != 2 || len(w.left()) != 3 {
		t.Errorf("%d pages read, left %v (%v): want two, and everything", asked, w.left(), err)
	}
}

func TestDeleteObjectDeletesOnlyThisOne(t *testing.T) {
	boom := errors.New("no connection")
	for name, tc := range map[string]struct {
		err, want error
	}{
		"done":                {nil, nil},
		"gone already":        {apierrors.NewNotFound(schema.GroupResource{}, "x"), nil},
		"replaced by another": {apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("UID")), nil},
		"no answer":           {boom, boom},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
				Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
					o := (&client.DeleteOptions{}).ApplyOptions(opts)
					if o.Preconditions == nil || *o.Preconditions.UID != captureUID || *o.PropagationPolicy != metav1.DeletePropagationBackground {
						t.Errorf("delete options %+v: another object of the same name could be deleted", o)
					}
					return tc.err
				},
			})
			if err := sweep.Delete(t.Context(), c, capture()); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
}

func failing(w *world, fail func(client.ObjectList) error) client.Reader {
	return interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := fail(list); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
	})
}

func ifCaptures(list client.ObjectList, err error) error {
	if list.GetObjectKind().GroupVersionKind().Kind == "PacketCaptureList" {
		return err
	}
	return nil
}
