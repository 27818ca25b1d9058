package podwatch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sonde-operator/sonde/internal/operator/podwatch"
)

var dawn = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at describes gaps by seconds since dawn.
func at(gaps []podwatch.Gap) []string {
	var all []string
	for _, g := range gaps {
		from := "?"
		if !g.From.IsZero() {
			from = fmt.Sprint(g.From.Sub(dawn).Seconds())
		}
		all = append(all, fmt.Sprintf("%s to %v", from, g.To.Sub(dawn).Seconds()))
	}
	return all
}

func TestGaps(t *testing.T) {
	for name, tc := range map[string]struct {
		led  time.Time
		do   func(w *podwatch.Watch, step func(int))
		want []string
	}{
		"not listed yet":                      {led: dawn, do: func(*podwatch.Watch, func(int)) {}},
		"an earlier leader":                   {led: dawn, do: func(w *podwatch.Watch, step func(int)) { step(40); w.Listed() }, want: []string{"-30 to 40"}},
		"an earlier leader's clock was ahead": {led: dawn.Add(time.Minute), do: func(w *podwatch.Watch, step func(int)) { step(40); w.Listed() }, want: []string{"? to 40"}},
		"no earlier leader":                   {do: func(w *podwatch.Watch, step func(int)) { step(40); w.Listed() }, want: []string{"? to 40"}},
		"the first list is tried again": {led: dawn, do: func(w *podwatch.Watch, step func(int)) {
			step(40)
			w.Listed()
			step(60)
			w.Listed()
			step(60)
			w.Observed()
		}, want: []string{"-30 to 100"}},
		"an interruption": {led: dawn, do: func(w *podwatch.Watch, step func(int)) {
			w.Listed()
			step(100)
			w.Observed()
			step(50)
			w.Listed()
		}, want: []string{"-30 to 0", "70 to 150"}},
	} {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakeClock(dawn)
			w := podwatch.New(clk, tc.led)
			tc.do(w, func(s int) { clk.Step(time.Duration(s) * time.Second) })
			if diff := cmp.Diff(tc.want, at(w.Gaps())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestGapsAreBounded checks that many gaps become one long one, and none is lost.
func TestGapsAreBounded(t *testing.T) {
	clk := testingclock.NewFakeClock(dawn)
	w := podwatch.New(clk, dawn)
	for range 100 {
		clk.Step(time.Minute)
		w.Observed()
		clk.Step(time.Minute)
		w.Listed()
	}
	gaps := w.Gaps()
	if len(gaps) != 16 || !gaps[0].From.Equal(dawn.Add(30*time.Second)) || !gaps[15].To.Equal(clk.Now()) {
		t.Errorf("gaps %v", at(gaps))
	}
}

// server answers the requests of an informer.
type server struct {
	initial bool // it sends all objects at the beginning of a watch
	late    bool // the test calls endInitial
	events  *watch.RaceFreeFakeWatcher
	lists   chan struct{}
}

var errNotSupported = errors.New("not supported")

func (s *server) List(metav1.ListOptions) (runtime.Object, error) {
	s.lists <- struct{}{}
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

func (s *server) Watch(o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		if !s.initial {
			return nil, errNotSupported
		}
		s.lists <- struct{}{}
		if !s.late {
			s.endInitial()
		}
	}
	return s.events, nil
}

func (s *server) endInitial() {
	s.events.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
}

// TestInformer checks that an informer of Pods notes each list, of both forms, and that an informer of another kind does not.
func TestInformer(t *testing.T) {
	for name, tc := range map[string]struct {
		kind    client.Object
		initial bool
		want    int
	}{
		"a list":                {kind: &corev1.Pod{}, want: 1},
		"a watch from the list": {kind: &corev1.Pod{}, initial: true, want: 1},
		"another kind":          {kind: &corev1.Node{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := podwatch.New(testingclock.NewFakeClock(dawn), dawn)
			s := &server{initial: tc.initial, events: watch.NewRaceFreeFake(), lists: make(chan struct{}, 10)}
			informer := w.NewInformer(s, tc.kind, 0, nil)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { informer.RunWithContext(ctx); close(ended) }()
			<-s.lists
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				t.Fatal("not synced")
			}
			cancel()
			<-ended
			if got := len(w.Gaps()); got != tc.want {
				t.Errorf("%d gaps, want %d", got, tc.want)
			}
		})
	}
}

// TestInitialEvents: a watch that begins with all Pods takes a while, and what happened before its bookmark is not known.
func TestInitialEvents(t *testing.T) {
	clk := testingclock.NewFakeClock(dawn)
	w := podwatch.New(clk, dawn)
	s := &server{events: watch.NewRaceFreeFake(), initial: true, late: true, lists: make(chan struct{}, 1)}
	clk.Step(40 * time.Second)
	events, err := w.Source(s).WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	clk.Step(20 * time.Second)
	s.events.Action(watch.Added, &corev1.Pod{})
	s.endInitial()
	<-events.ResultChan()
	<-events.ResultChan()
	clk.Step(100 * time.Second)
	s.events.Action(watch.Modified, &corev1.Pod{})
	<-events.ResultChan()
	clk.Step(10 * time.Second)
	w.Listed()
	if diff := cmp.Diff([]string{"-30 to 60", "130 to 170"}, at(w.Gaps())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestInterruptedWatch checks from when Pods are known not to have been watched: the API server accepts a watch whose changes it
// does not have any more, and then sends an error.
func TestInterruptedWatch(t *testing.T) {
	expired := watch.Event{Type: watch.Error, Object: &metav1.Status{Code: 410, Reason: metav1.StatusReasonExpired}}
	tests := map[string]struct {
		events []watch.Event // of the watch that is accepted after 100 s
		want   string
	}{
		"expired":               {[]watch.Event{expired}, "-30 to 110"},
		"a change":              {[]watch.Event{{Type: watch.Modified, Object: &corev1.Pod{}}, expired}, "70 to 110"},
		"a bookmark":            {[]watch.Event{{Type: watch.Bookmark, Object: &corev1.Pod{}}, expired}, "70 to 110"},
		"ends without an event": {nil, "-30 to 110"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakeClock(dawn)
			w := podwatch.New(clk, dawn)
			s := &server{events: watch.NewRaceFreeFake(), lists: make(chan struct{}, 10)}
			pods := w.Source(s)
			clk.Step(100 * time.Second)
			events, err := pods.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range tc.events {
				s.events.Action(e.Type, e.Object)
			}
			s.events.Stop()
			n := 0
			for range events.ResultChan() {
				n++
			}
			clk.Step(10 * time.Second)
			if _, err := pods.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.want}, at(w.Gaps())); diff != "" || n != len(tc.events) {
				t.Errorf("%d events, gaps (-want +got):\n%s", n, diff)
			}
		})
	}
}

// TestStoppedWatch checks that nothing waits for the reader of a watch that is stopped.
func TestStoppedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{events: watch.NewRaceFreeFake()}
		events, err := podwatch.New(testingclock.NewFakeClock(dawn), dawn).Source(s).WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
		if err != nil {
			t.Fatal(err)
		}
		s.events.Action(watch.Added, &corev1.Pod{})
		synctest.Wait()
		events.Stop()
		events.Stop() // the test ends only when each goroutine has ended
	})
}

func TestLastLed(t *testing.T) {
	key := client.ObjectKey{Namespace: "sonde-system", Name: "sonde-manager"}
	lease := func(renewed *metav1.MicroTime) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: coordinationv1.LeaseSpec{RenewTime: renewed}}
	}
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		want  time.Time
	}{
		"renewed":       {lease(new(metav1.NewMicroTime(dawn))), dawn},
		"never renewed": {lease: lease(nil)},
		"no lease":      {},
	} {
		t.Run(name, func(t *testing.T) {
			b := fake.NewClientBuilder()
			if tc.lease != nil {
				b = b.WithObjects(tc.lease)
			}
			got, err := podwatch.LastLed(t.Context(), b.Build(), key)
			if err != nil || !got.Equal(tc.want) {
				t.Errorf("%v, %v, want %v", got, err, tc.want)
			}
		})
	}
}
