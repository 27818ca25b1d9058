package collector

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

// collectorIn returns a Collector with a release of its own.
func collectorIn(namespace string, i int) *sondev1.Collector {
	c := newCollector()
	c.Namespace, c.Name, c.UID = namespace, fmt.Sprint("c-", i), types.UID(fmt.Sprintf("%s-%d", namespace, i))
	c.Spec.Tenant.Reference, c.Spec.Tenant.Instance = namespace, fmt.Sprint("i", i)
	return c
}

// add creates Collectors, which the webhook has admitted, and their namespaces.
func (w *world) add(collectors ...*sondev1.Collector) {
	w.t.Helper()
	for _, c := range collectors {
		w.sign(c)
		if err := w.Create(w.t.Context(), c); err != nil {
			w.t.Fatal(err)
		}
		if err := w.Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}); client.IgnoreAlreadyExists(err) != nil {
			w.t.Fatal(err)
		}
	}
}

// sign stamps a Collector as the webhook does.
func (w *world) sign(c *sondev1.Collector) {
	w.t.Helper()
	w.signFor(c, uidOf(c.ReleaseNamespace()))
}

// signFor stamps a Collector for a namespace with this UID.
func (w *world) signFor(c *sondev1.Collector, namespace types.UID) {
	w.t.Helper()
	var err error
	claim := stamp.Claim{Requester: access.Requester{Username: "ann"}, TargetNamespaceUID: string(namespace), IssuedAt: now}
	if c.Annotations, err = stamp.SignCollector(w.Key, c, claim); err != nil {
		w.t.Fatal(err)
	}
}

// reconcile makes a pass over a Collector, which a test may do in several goroutines.
func (w *world) reconcile(c *sondev1.Collector) ctrl.Result {
	w.t.Helper()
	result, err := w.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
	if err != nil {
		w.t.Error(err)
	}
	return result
}

// fill lets as many Collectors of a namespace run as it may have.
func (w *world) fill(namespace string) (all []*sondev1.Collector) {
	w.t.Helper()
	for i := range maxRunning {
		all = append(all, collectorIn(namespace, i))
	}
	w.add(all...)
	for _, c := range all {
		w.reconcile(c)
	}
	return all
}

// jobsIn returns how many Jobs of a namespace have not ended.
func (w *world) jobsIn(namespace string) (n int) {
	for _, job := range w.jobs() {
		if job.Namespace == namespace && !target.JobEnded(&job) {
			n++
		}
	}
	return n
}

// running returns how many Collectors run.
func (w *world) running() (int, error) {
	o := &observation{collector: collectorIn("another", 1), now: w.clock.Now()}
	err := w.observePlaces(w.t.Context(), o)
	return o.running, err
}

// forge writes a Job that never ends, as a user may who can write Jobs.
func (w *world) forge(c *sondev1.Collector, name string, number int) {
	w.t.Helper()
	job := BuildJob(c, BuildAnchor(c), int64(number), "eve")
	job.Name, job.UID = name, types.UID("forged-"+name)
	if err := w.Create(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
}

// Jobs that never end and carry the UIDs of a user's own Collectors hold no place in the queue, whatever they look like, also after a
// change of the leader.
func TestForgedJobsOfOwnCollectors(t *testing.T) {
	for name, forge := range map[string]func(w *world, c *sondev1.Collector){
		"with a name": func(w *world, c *sondev1.Collector) { w.forge(c, "job-"+string(c.UID), 1) },
		"that is the next run": func(w *world, c *sondev1.Collector) {
			w.forge(c, runName(c, 1), 1)
		},
		"with a status from them": func(w *world, c *sondev1.Collector) {
			w.forge(c, runName(c, 1), 1)
			w.reconcile(c) // takes it into the status
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCollector())
			for i := range maxRunning {
				c := collectorIn("eve", i)
				c.Spec.Suspend = true
				w.add(c)
				forge(w, c)
			}
			w.places = places{}
			want(t, w.pass(), sondev1.ConditionReconciling, "True", sondev1.ReasonReleasing)
			if n := w.jobsIn("acme"); n != 1 {
				t.Errorf("%d Jobs, want one", n)
			}
		})
	}
}

// Five namespaces can take all places, for as long as their Jobs may run. A Job that a user suspends, or replaces by another of its name,
// does not keep the place.
func TestPlacesOfSeveralNamespaces(t *testing.T) {
	w := newWorld(t, newCollector())
	for i, most := range []int{10, 5, 3, 1, 1, 0} {
		namespace := fmt.Sprint("eve-", i)
		w.fill(namespace)
		if n := w.jobsIn(namespace); n != most {
			t.Errorf("%d Jobs in namespace %d, want %d", n, i+1, most)
		}
	}
	want(t, w.pass(), sondev1.ConditionReconciling, "True", sondev1.ReasonQueued)
	replaced := w.jobs()[0]
	if err := w.Delete(t.Context(), &replaced); err != nil {
		t.Fatal(err)
	}
	replaced.ResourceVersion, replaced.UID = "", "another"
	if err := w.Create(t.Context(), &replaced); err != nil {
		t.Fatal(err)
	}
	if running, err := w.running(); err != nil || running != maxRunning-1 {
		t.Errorf("%d run after one was replaced (%v), want %d", running, err, maxRunning-1)
	}
	w.clock.SetTime(w.clock.Now().Add(defaultTimeout + extraTime + placeMargin))
	if running, err := w.running(); err != nil || running != 0 {
		t.Errorf("%d run after all deadlines (%v), want none", running, err)
	}
}

// Workers whose cache lacks all Jobs, and statuses, that they have just written do not start more than maxRunning.
func TestPlacesWithALateCache(t *testing.T) {
	w := newWorld(t, newCollector())
	w.Own = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewNotFound(batchv1.Resource("jobs"), key.Name)
		},
	})
	var group sync.WaitGroup
	var all []*sondev1.Collector
	for i := range 3 * maxRunning {
		all = append(all, collectorIn(fmt.Sprint("shop-", i), 1))
	}
	w.add(all...)
	for worker := range workers {
		group.Go(func() {
			for i := worker; i < len(all); i += workers {
				w.reconcile(all[i])
			}
		})
	}
	group.Wait()
	if n := len(w.jobs()); n != maxRunning {
		t.Errorf("%d Jobs, want %d", n, maxRunning)
	}
}

// A new leader counts the Jobs of the one before.
func TestPlacesOfAnEarlierLeader(t *testing.T) {
	w := newWorld(t, newCollector())
	w.fill("shop")
	w.places = places{}
	count := func() int {
		running, err := w.running()
		if err != nil {
			t.Fatal(err)
		}
		return running
	}
	if n := count(); n != maxHere {
		t.Errorf("%d run, want %d", n, maxHere)
	}
	job := w.jobs()[0]
	w.end(&job, release.Report{Outcome: release.Ready, Revision: 1})
	w.clock.SetTime(w.clock.Now().Add(adoptDelay))
	if n := count(); n != maxHere-1 {
		t.Errorf("%d run after one has ended, want %d", n, maxHere-1)
	}
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	if n := count(); n != maxHere-1 {
		t.Errorf("%d run after an hour, want %d: they may have a timeout of one hour", n, maxHere-1)
	}
	w.clock.SetTime(w.clock.Now().Add(extraTime + placeMargin))
	if n := count(); n != 0 {
		t.Errorf("%d run after the longest deadline, want none", n)
	}
}

// A new leader cannot tell a Job with which a user has replaced the operator's from that one. So two namespaces can then take all places, for
// the longest deadline.
func TestReplacedJobsAfterAChangeOfTheLeader(t *testing.T) {
	w := newWorld(t, newCollector())
	check := func(when string, want int) {
		t.Helper()
		if n, err := w.running(); err != nil || n != want {
			t.Errorf("%s %d run (%v), want %d", when, n, err, want)
		}
	}
	for _, namespace := range []string{"eve-1", "eve-2"} {
		for i := range maxHere {
			c := collectorIn(namespace, i)
			w.add(c)
			w.reconcile(c)
		}
		for _, job := range w.jobs() {
			if job.Namespace != namespace {
				continue
			}
			if err := w.Delete(t.Context(), &job); err != nil {
				t.Fatal(err)
			}
			job.ResourceVersion, job.UID = "", "another-"+job.UID
			if err := w.Create(t.Context(), &job); err != nil {
				t.Fatal(err)
			}
		}
		check("after all in "+namespace+" were replaced", 0)
	}
	w.places = places{}
	check("with a new leader", maxRunning)
	w.clock.SetTime(w.clock.Now().Add(maxTimeout + extraTime + placeMargin))
	check("after the longest deadline", 0)
}

// An answer to the creation of a Job that is lost does not free its place. A refusal does.
func TestPlaceOfALostAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		err     error
		created bool
		want    int
		later   int
	}{
		"lost":              {apierrors.NewInternalError(context.DeadlineExceeded), true, 1, 1},
		"lost, not created": {apierrors.NewInternalError(context.DeadlineExceeded), false, 1, 0},
		"refused":           {apierrors.NewForbidden(batchv1.Resource("jobs"), "j", nil), false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCollector())
			w.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if _, ok := o.(*batchv1.Job); !ok {
						return c.Create(ctx, o, opts...)
					}
					if tc.created {
						if err := c.Create(ctx, o, opts...); err != nil {
							return err
						}
					}
					return tc.err
				},
			})
			_, _ = w.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "acme", Name: "mine"}})
			for _, at := range []struct {
				after time.Duration
				want  int
			}{{0, tc.want}, {2 * cacheLag, tc.later}} {
				w.clock.SetTime(now.Add(at.after))
				if running, err := w.running(); err != nil || running != at.want {
					t.Errorf("after %s %d run (%v), want %d", at.after, running, err, at.want)
				}
			}
		})
	}
}
