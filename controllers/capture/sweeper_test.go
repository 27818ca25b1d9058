package capture

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/health"
)

// TestSweep: what is left in the operator's namespace after the events of the table.
func TestSweep(t *testing.T) {
	all := []string{"Job web-1-qwer", "ConfigMap shop-web", "Secret shop-web-c0ffee00-keeper"}
	strangers := []string{"ConfigMap of-a-later-kind", "ConfigMap of-nobody"}
	again := func(w *world) {
		w.remove(w.capture())
		w.add(newCapture(func(pc *sondev1.PacketCapture) { pc.UID = "the-next-one" }))
	}
	cases := map[string]struct {
		happens func(*world)
		want    []string
	}{
		"nothing happened":         {func(*world) {}, append(all, strangers...)},
		"the capture is deleted":   {func(w *world) { w.remove(w.capture()) }, strangers},
		"the capture is made anew": {again, strangers},
		"the capture is being deleted, and somebody's finalizer holds it": {func(w *world) {
			pc := w.capture()
			pc.Finalizers = []string{"example.test/held"}
			w.update(pc)
			w.remove(pc)
		}, strangers},
	}
	for name, tc := range cases {
		for how, sweep := range map[string]func(*world) error{
			"reconciled": func(w *world) error {
				w.pass()
				return nil
			},
			"at start": func(w *world) error { return w.r.Sweeper.SweepAll(w.t.Context()) },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				w := newWorld(t, newCapture(), deployment("web-1")...)
				w.settle()
				w.add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Name: "of-a-later-kind", Namespace: operatorNamespace, Labels: map[string]string{sondev1.LabelUID: "later", sondev1.LabelKind: "Later"},
				}}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "of-nobody", Namespace: operatorNamespace}})
				tc.happens(w)
				if how == "reconciled" && name == "the capture is made anew" {
					w.stampErr = errors.New("not yet") // the next one makes nothing in this pass
					_ = w.r.Sweeper.Sweep(t.Context(), kind.PacketCapture.Kind, w.key)
				} else if err := sweep(w); err != nil {
					t.Fatal(err)
				}
				got := w.left()
				slices.Sort(got)
				want := slices.Sorted(slices.Values(tc.want))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("left (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestSweepAllWithoutTheKind: the CRDs were deleted, and every capture with them. One answer is not enough to believe it.
func TestSweepAllWithoutTheKind(t *testing.T) {
	const noSuchPage, all = "404 page not found", 3
	gone := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", noSuchPage, 0, true)
	for name, tc := range map[string]struct {
		answers []error // every 15 s
		want    int     // objects left
	}{
		"for good":                  {[]error{gone, gone, gone}, 0},
		"no matter how it is found": {[]error{&apimeta.NoKindMatchError{}, gone, gone}, 0},
		"for a moment":              {[]error{gone, gone, nil, gone, gone}, all},
		"not known":                 {[]error{gone, gone, errors.New("no connection")}, all},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), deployment("web-1")...)
			w.settle()
			s := anotherSweeper(w)
			s.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{ // its cache has lost them, too
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if _, ok := list.(*sondev1.PacketCaptureList); ok {
						return nil
					}
					return c.List(ctx, list, opts...)
				},
			})
			for _, answer := range tc.answers {
				s.Live = failing(w, func(list client.ObjectList) error { return ifCaptures(list, answer) })
				err := s.SweepAll(t.Context())
				if deleted := len(w.left()) == 0; deleted != (err == nil) && answer != nil {
					t.Errorf("deleted: %v, error %v", deleted, err)
				}
				w.clock.Step(kindGoneDelay)
			}
			if got := len(w.left()); got != tc.want {
				t.Errorf("%d objects are left, want %d", got, tc.want)
			}
		})
	}
}

// TestSweepAllKnowsNothing: an API server that does not answer is no reason to delete anything.
func TestSweepAllKnowsNothing(t *testing.T) {
	boom := errors.New("no connection")
	for name, fail := range map[string]func(client.ObjectList) error{
		"captures": func(list client.ObjectList) error { return ifCaptures(list, boom) },
		"objects":  func(client.ObjectList) error { return boom },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), deployment("web-1")...)
			w.settle()
			w.remove(w.capture())
			s := anotherSweeper(w)
			s.Live = failing(w, fail)
			if name == "objects" {
				s.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
					List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return boom },
				})
			}
			if err := s.SweepAll(t.Context()); !errors.Is(err, boom) || len(w.left()) != 3 {
				t.Errorf("left %v, error %v: want everything, and %v", w.left(), err, boom)
			}
		})
	}
}

func TestSweeperRuns(t *testing.T) {
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	ctx, cancel := context.WithCancel(t.Context())
	swept := make(chan struct{}, 8)
	s := anotherSweeper(w)
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

// TestSweepAllThatHangs: it is given up in the end, and found by the watchdog before.
func TestSweepAllThatHangs(t *testing.T) {
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	w.remove(w.capture())
	s := anotherSweeper(w)
	s.Watchdog = &health.Watchdog{Limit: time.Minute, Clock: w.clock}
	s.Live = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("a sweep may take for ever")
			}
			w.clock.Step(2 * time.Minute)
			if err := s.Watchdog.Check(nil); err == nil || !strings.Contains(err.Error(), "sweeper") {
				t.Errorf("the watchdog says %v", err)
			}
			return context.DeadlineExceeded
		},
	})
	if err := s.SweepAll(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := s.Watchdog.Check(nil); err != nil {
		t.Errorf("after the end the watchdog says %v", err)
	}
}

// TestSweepAllAsksNobody while the cache knows the captures of all that was made.
func TestSweepAllAsksNobody(t *testing.T) {
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	s := anotherSweeper(w)
	s.Live = nil // a call would panic
	if err := s.SweepAll(t.Context()); err != nil || len(w.left()) != 3 {
		t.Errorf("left %v (%v), want everything", w.left(), err)
	}
}

// TestSweepAllReadsPages: a capture that the cache has not seen yet lives, on a later page as on the first.
func TestSweepAllReadsPages(t *testing.T) {
	w := newWorld(t, newCapture(), deployment("web-1")...)
	w.settle()
	s := anotherSweeper(w)
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
			if o.Continue == "" { // a page of nobody's
				list.SetContinue("more")
				return nil
			}
			return c.List(ctx, list)
		},
	})
	if err := s.SweepAll(t.Context()); err != nil || asked != 2 || len(w.left()) != 3 {
		t.Errorf("%d pages read, left %v (%v): want two, and everything", asked, w.left(), err)
	}
}

func TestDeleteObjectDeletesOnlyThisOne(t *testing.T) {
	boom := errors.New("no connection")
	for name, tc := range map[string]struct {
		err, want error
	}{
		"done":           {nil, nil},
		"gone already":   {apierrors.NewNotFound(schema.GroupResource{}, "x"), nil},
		"another by now": {apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("UID")), nil},
		"no answer":      {boom, boom},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture())
			c := interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
				Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
					o := (&client.DeleteOptions{}).ApplyOptions(opts)
					if o.Preconditions == nil || *o.Preconditions.UID != captureUID || *o.PropagationPolicy != metav1.DeletePropagationBackground {
						t.Errorf("delete options %+v: another of the same name could be hit", o)
					}
					return tc.err
				},
			})
			if err := deleteObject(t.Context(), c, newCapture()); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
}

// anotherSweeper of the same world, for a test to change.
func anotherSweeper(w *world) *Sweeper {
	s := w.r.Sweeper
	return &Sweeper{Client: s.Client, Live: s.Live, Clock: s.Clock, Interval: s.Interval, Namespace: s.Namespace, Parallelism: s.Parallelism}
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

func TestResultAccess(t *testing.T) {
	access := &sondev1.ResultAccess{
		ObjectMeta: metav1.ObjectMeta{Name: "ra", Namespace: "shop", UID: "ra-uid", CreationTimestamp: metav1.NewTime(dawn)},
		Spec:       sondev1.ResultAccessSpec{ExpirationSeconds: 60},
	}
	w := newWorld(t, newCapture(), access)
	r := &ResultAccessReconciler{Client: w.client, Clock: w.clock}
	key := types.NamespacedName{Namespace: "shop", Name: "ra"}
	for _, step := range []struct {
		after, again time.Duration
		there        bool
	}{{0, time.Minute, true}, {59 * time.Second, time.Second, true}, {time.Second, 0, false}, {time.Hour, 0, false}} {
		w.clock.Step(step.after)
		res, err := r.Reconcile(t.Context(), request(key))
		if err != nil || res.RequeueAfter != step.again {
			t.Errorf("at %v: again after %v (%v), want %v", w.clock.Since(dawn), res.RequeueAfter, err, step.again)
		}
		err = w.client.Get(t.Context(), key, &sondev1.ResultAccess{})
		if (err == nil) != step.there {
			t.Errorf("at %v: get says %v, want it there: %v", w.clock.Since(dawn), err, step.there)
		}
	}
}
