package health

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestWatchdogFindsWhatHangs(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(time.Now())
	w := &Watchdog{Limit: time.Minute, Clock: clk}
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := w.Watch("packetcapture", reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		close(begun)
		<-end
		return reconcile.Result{}, nil
	}))
	go func() {
		defer close(ended)
		_, _ = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}})
	}()
	<-begun
	clk.SetTime(clk.Now().Add(time.Minute))
	if err := w.Check(nil); err != nil {
		t.Errorf("within the limit: %v", err)
	}
	clk.SetTime(clk.Now().Add(time.Second))
	if err := w.Check(nil); err == nil || !strings.Contains(err.Error(), "packetcapture shop/web") {
		t.Errorf("above the limit: %v, want an error that names the pass", err)
	}
	close(end)
	<-ended
	if err := w.Check(nil); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

type informer bool

func (i informer) HasSynced() bool { return bool(i) }

func TestSynced(t *testing.T) {
	for name, tc := range map[string]struct {
		pods, jobs informer
		wantErr    string
	}{
		"all":     {pods: true, jobs: true},
		"one not": {pods: true, wantErr: "Jobs"},
	} {
		t.Run(name, func(t *testing.T) {
			err := synced(map[string]Informer{"Pods": tc.pods, "Jobs": tc.jobs})(nil)
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("got %v, want an error with %q", err, tc.wantErr)
			}
		})
	}
}
