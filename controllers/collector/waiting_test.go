package collector

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

// woke returns which Collectors were woken, and forgets them.
func (w *world) woke() (names []string) {
	for _, r := range w.queue.requests {
		names = append(names, r.String())
	}
	w.queue.requests = nil
	return names
}

// endJob ends a Job, and returns which Collectors that wakes besides its own.
func (w *world) endJob(job *batchv1.Job) []string {
	w.t.Helper()
	w.end(job, release.Report{Outcome: release.Ready, Revision: 1})
	w.jobChanged(w.t.Context(), job)
	return w.woke()
}

// runningJob returns a Job of a namespace that has not ended.
func (w *world) runningJob(namespace string) *batchv1.Job {
	w.t.Helper()
	for _, job := range w.jobs() {
		if job.Namespace == namespace && !target.JobEnded(&job) {
			return &job
		}
	}
	w.t.Fatalf("no Job runs in %s", namespace)
	return nil
}

func wantWoken(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("woken %v, want %v", got, want)
	}
}

// Many Collectors that wait read nothing from the API server within a minute, whatever wakes them, and do not poll. When a Job ends,
// one is called, and starts.
func TestManyCollectorsWait(t *testing.T) {
	w := newWorld(t, newCollector())
	all := w.fill("eve")
	const many = 250 // a pass lists them all, which the fake API copies each time
	for i := range many - len(all) {
		c := collectorIn("eve", maxRunning+i)
		w.add(c)
		all = append(all, c)
	}
	w.clock.SetTime(now.Add(2 * cacheLag)) // no Job of an earlier leader is looked for
	for _, c := range all[maxRunning:] {
		w.reconcile(c)
	}
	w.woke()
	reads := 0
	w.Live = interceptor.NewClient(w.Live.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, o, opts...)
		},
	})
	for range 6 {
		w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
		for _, c := range all[maxHere:] {
			if after := w.reconcile(c).RequeueAfter; after <= time.Minute {
				t.Fatalf("another pass follows after %s", after)
			}
		}
	}
	if reads != 0 {
		t.Errorf("%d reads of Collectors that wait, want none", reads)
	}
	wantWoken(t, w.endJob(w.runningJob("eve")), fmt.Sprintf("eve/c-%d", maxHere))
	w.reconcile(all[maxHere+1])
	if reads != 0 {
		t.Error("a Collector that was not called is read")
	}
	w.reconcile(all[maxHere])
	if n := w.jobsIn("eve"); n != maxHere {
		t.Errorf("%d Jobs, want %d", n, maxHere)
	}
	wantWoken(t, w.woke())
}

// A place goes to the namespace with the fewest, and there to the one that has waited longest. One that does not come waits again.
func TestWhichCollectorIsCalled(t *testing.T) {
	w := newWorld(t, newCollector())
	for i := range 5 {
		w.fill(fmt.Sprint("eve-", i)) // 10, 5, 3, 1 and 1
	}
	first, second := collectorIn("shop", 1), collectorIn("shop", 2)
	w.add(first, second)
	w.reconcile(second)
	w.reconcile(first)
	w.woke()
	wantWoken(t, w.endJob(w.runningJob("eve-0")), "shop/c-2")
	w.reconcile(first)
	w.clock.SetTime(w.clock.Now().Add(callTime / 2))
	wantWoken(t, w.endJob(w.runningJob("eve-0"))) // the last place is for a namespace that has none
	w.reconcile(first)
	wantWoken(t, w.woke())
	w.clock.SetTime(w.clock.Now().Add(callTime / 2))
	w.reconcile(first)
	wantWoken(t, w.woke(), "shop/c-1")
	w.reconcile(second)
	if n := w.jobsIn("shop"); n != 1 {
		t.Errorf("%d Jobs, want one", n)
	}
}

// A Collector that was called and needs no place any more leaves it to the next one.
func TestCalledCollectorLeavesItsPlace(t *testing.T) {
	for name, leave := range map[string]func(w *world, c *sondev1.Collector){
		"deleted": func(w *world, c *sondev1.Collector) {
			if err := w.Delete(w.t.Context(), c); err != nil {
				w.t.Fatal(err)
			}
		},
		"suspended": func(w *world, c *sondev1.Collector) {
			w.change(c, func(s *sondev1.CollectorSpec) { s.Suspend = true })
		},
		"forbidden": func(w *world, _ *sondev1.Collector) { w.denied = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCollector())
			all := w.fill("shop")
			w.woke()
			next := all[maxHere]
			wantWoken(t, w.endJob(w.runningJob("shop")), client.ObjectKeyFromObject(next).String())
			leave(w, next)
			w.woke()
			w.reconcile(next)
			wantWoken(t, w.woke(), client.ObjectKeyFromObject(all[maxHere+1]).String())
		})
	}
}

// change changes the spec of a Collector as the webhook admits it.
func (w *world) change(c *sondev1.Collector, change func(*sondev1.CollectorSpec)) {
	w.t.Helper()
	live := &sondev1.Collector{}
	if err := w.Live.Get(w.t.Context(), client.ObjectKeyFromObject(c), live); err != nil {
		w.t.Fatal(err)
	}
	change(&live.Spec)
	live.Generation++
	w.sign(live)
	if err := w.Update(w.t.Context(), live); err != nil {
		w.t.Fatal(err)
	}
}

// A Collector that waits and is changed, or paused, has a pass, and keeps its turn.
func TestChangeWhileWaiting(t *testing.T) {
	w := newWorld(t, newCollector())
	all := w.fill("shop")
	w.woke()
	first := all[maxHere]
	generation := func() int64 {
		c := &sondev1.Collector{}
		if err := w.Live.Get(t.Context(), client.ObjectKeyFromObject(first), c); err != nil {
			t.Fatal(err)
		}
		want(t, c, sondev1.ConditionReconciling, "True", sondev1.ReasonQueued)
		return c.Status.ObservedGeneration
	}
	before := generation()
	w.change(first, func(s *sondev1.CollectorSpec) { s.Cluster = "west" })
	w.reconcile(first)
	if after := generation(); after != before+1 {
		t.Errorf("observed generation %d after %d", after, before)
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: pause.ConfigMapName}, Data: map[string]string{pause.Key: "true"}}
	if err := w.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.reconcile(all[maxHere+1])
	c := &sondev1.Collector{}
	if err := w.Live.Get(t.Context(), client.ObjectKeyFromObject(all[maxHere+1]), c); err != nil {
		t.Fatal(err)
	}
	want(t, c, sondev1.ConditionReady, "False", sondev1.ReasonPaused)
	if err := w.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.reconcile(all[maxHere+1])
	wantWoken(t, w.endJob(w.runningJob("shop")), client.ObjectKeyFromObject(first).String())
}

// A look for drift that waits for a place costs no read, and is called as well.
func TestDriftWaits(t *testing.T) {
	c := newCollector()
	c.Spec.Drift = sondev1.DriftRepair
	w := newWorld(t, c)
	w.pass()
	w.end(&w.jobs()[0], release.Report{Outcome: release.Ready, Revision: 1})
	w.pass()
	w.clock.SetTime(now.Add(defaultInterval))
	for i := range 5 {
		w.fill(fmt.Sprint("eve-", i))
	}
	w.woke()
	want(t, w.pass(), sondev1.ConditionReady, "True", sondev1.ReasonUpToDate)
	if n := w.jobsIn("acme"); n != 0 {
		t.Errorf("%d Jobs without a place", n)
	}
	wantWoken(t, w.endJob(w.runningJob("eve-0")), "acme/mine")
	want(t, w.pass(), sondev1.ConditionReady, "True", sondev1.ReasonUpToDate)
	if n := w.jobsIn("acme"); n != 1 {
		t.Errorf("%d Jobs, want one that looks", n)
	}
}

// Delays of what users can hold grow: a stray Pod, an anchor that is not removed.
func TestGrowingDelay(t *testing.T) {
	o := &observation{collector: newCollector(), now: now}
	for _, tc := range []struct{ since, want time.Duration }{
		{0, strayDelay}, {-24 * time.Hour, maxClosedDelay}, {time.Minute, 15 * time.Second}, {time.Hour, maxClosedDelay},
	} {
		o.now = now
		o.collector.Status.Conditions = nil
		o.set(sondev1.ConditionReconciling, metav1.ConditionTrue, sondev1.ReasonReleasing, "m")
		o.now = now.Add(tc.since)
		if got := o.growing(strayDelay); got != tc.want {
			t.Errorf("after %s the delay is %s, want %s", tc.since, got, tc.want)
		}
	}
}
