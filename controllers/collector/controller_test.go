package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

// world is a fake cluster with one Collector.
type world struct {
	*Reconciler

	t      *testing.T
	clock  *clocktesting.FakePassiveClock
	queue  *woken
	writes atomic.Int32
	// denied users may not create Jobs; closed: the operator may not either.
	denied, closed bool
}

// woken is a queue that only has the requests that watches added.
type woken struct {
	queue

	requests []reconcile.Request
}

func (q *woken) Add(r reconcile.Request) { q.requests = append(q.requests, r) }

func (w *world) ReviewJobs(context.Context, access.Requester, string) (access.Decision, error) {
	return access.Decision{Allowed: !w.denied, Reason: "no right"}, nil
}

func newWorld(t *testing.T, c *sondev1.Collector, objects ...client.Object) *world {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, sondev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	key := []byte(strings.Repeat("k", stamp.KeyBytes))
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(now), queue: &woken{}, Reconciler: &Reconciler{Key: key}}
	w.sign(c)
	funcs := interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.writes.Add(1)
			if o.GetUID() == "" {
				o.SetUID(uidOf(o.GetName()))
			}
			o.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			w.writes.Add(1)
			if err := checkUID(ctx, c, o, opts); err != nil {
				return err
			}
			err := c.Delete(ctx, o, opts...)
			if deleted, ok := o.(*sondev1.Collector); ok && err == nil {
				w.collectorDeleted(ctx, event.DeleteEvent{Object: deleted}, w.queue)
			}
			return err
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.writes.Add(1)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}
	if !slices.ContainsFunc(objects, func(o client.Object) bool { _, ok := o.(*corev1.Namespace); return ok }) {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme", UID: uidOf("acme")}})
	}
	fakes := fake.NewClientBuilder().WithScheme(s).WithObjects(append(objects, c)...).WithStatusSubresource(&sondev1.Collector{}).WithInterceptorFuncs(funcs).Build()
	w.Reconciler = &Reconciler{
		Client: cached(fakes), Own: stripped(fakes), Live: fakes, PauseConfig: fakes, Reviews: w, Key: key, Namespace: "sonde-system", Image: "releaser",
		Permitted: func(context.Context, authorizationv1.ResourceAttributes) (bool, error) { return !w.closed, nil },
		Recorder:  events.NewFakeRecorder(10_000), Clock: w.clock,
		enqueue: w.queue.Add,
	}
	return w
}

// checkUID refuses to delete an object of another UID, as the API server does. The fake client ignores this precondition.
func checkUID(ctx context.Context, c client.Client, o client.Object, opts []client.DeleteOption) error {
	only := (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions
	found := o.DeepCopyObject().(client.Object)
	if only == nil || only.UID == nil {
		return nil
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), found); err != nil {
		return client.IgnoreNotFound(err)
	}
	if found.GetUID() == *only.UID {
		return nil
	}
	return apierrors.NewConflict(corev1.Resource("objects"), o.GetName(), errors.New("another UID"))
}

// uidOf a namespace or another object that is the first of its name.
func uidOf(name string) types.UID { return types.UID("uid-of-" + name) }

// cached reads Collectors as the manager's cache keeps them.
func cached(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			_, err := target.Strip(o)
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := c.List(ctx, list, opts...); err != nil {
				return err
			}
			return apimeta.EachListItem(list, func(o runtime.Object) error {
				if c, ok := o.(*sondev1.Collector); ok {
					_, err := target.Strip(c)
					return err
				}
				return nil
			})
		},
	})
}

// stripped lists Jobs and Pods as the manager's cache keeps them.
func stripped(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if err := c.List(ctx, list, opts...); err != nil {
			return err
		}
		switch list := list.(type) {
		case *batchv1.JobList:
			for i := range list.Items {
				kept, _ := strip(&list.Items[i])
				list.Items[i] = *kept.(*batchv1.Job)
			}
		case *corev1.PodList:
			for i := range list.Items {
				kept, _ := strip(&list.Items[i])
				list.Items[i] = *kept.(*corev1.Pod)
			}
		}
		return nil
	}})
}

// pass reconciles, and returns the Collector.
func (w *world) pass() *sondev1.Collector {
	w.t.Helper()
	key := client.ObjectKey{Namespace: "acme", Name: "mine"}
	if _, err := w.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		w.t.Fatal(err)
	}
	c := &sondev1.Collector{}
	if err := w.Live.Get(w.t.Context(), key, c); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) jobs() []batchv1.Job {
	w.t.Helper()
	var list batchv1.JobList
	if err := w.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// end lets the releaser of a Job end with a report.
func (w *world) end(job *batchv1.Job, r release.Report) {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: job.Namespace, Name: job.Name + "-x", Labels: job.Labels, Annotations: job.Spec.Template.Annotations,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: new(true)}},
	}}
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: release.Container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: reportText(w.t, r)}}}}
	if err := w.Create(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	if err := w.Status().Update(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
}

func want(t *testing.T, c *sondev1.Collector, kind string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	got := condition(c, kind)
	if got == nil || got.Status != status || got.Reason != reason || got.ObservedGeneration != c.Generation {
		t.Errorf("%s is %+v, want %s %s", kind, got, status, reason)
	}
}

func TestLife(t *testing.T) {
	w := newWorld(t, newCollector())
	c := w.pass()
	want(t, c, sondev1.ConditionReconciling, "True", sondev1.ReasonReleasing)
	want(t, c, sondev1.ConditionReady, "False", sondev1.ReasonReleasing)
	jobs := w.jobs()
	if len(jobs) != 1 || c.Status.Job != jobs[0].Name {
		t.Fatalf("Jobs %v, status %s", jobs, c.Status.Job)
	}
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: jobs[0].Name}, secret); err != nil {
		t.Fatal(err)
	}
	q, err := release.ParseRequest(secret.Data[release.RequestKey])
	if err != nil || q.Release != "collector-prod" || q.Namespace != "acme" || q.Install != 300 || q.Remedy != "" {
		t.Errorf("request %+v, %v", q, err)
	}
	w.quiet("while the Job runs")
	w.end(&jobs[0], release.Report{Outcome: release.Ready, Revision: 1, ChartVersion: "1.0.0", History: []release.Revision{{Revision: 1, Status: "deployed"}}})
	c = w.pass()
	want(t, c, sondev1.ConditionReady, "True", sondev1.ReasonUpToDate)
	want(t, c, sondev1.ConditionStalled, "False", sondev1.ReasonUpToDate)
	if c.Status.Revision != 1 || c.Status.ChartVersion != "1.0.0" || len(c.Status.History) != 1 {
		t.Errorf("status %+v", c.Status)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the Secret of the last request: %v", err)
	}
	w.quiet("when the release is ready")
	if len(w.jobs()) != 1 {
		t.Error("the last Job is gone, and its log with it")
	}
}

// quiet checks that another pass writes nothing.
func (w *world) quiet(when string) {
	w.t.Helper()
	w.writes.Store(0)
	w.pass()
	if n := w.writes.Load(); n != 0 {
		w.t.Errorf("%d writes %s", n, when)
	}
}

// request returns what the newest Job was asked to do.
func (w *world) request() (*batchv1.Job, *release.Request) {
	w.t.Helper()
	jobs := w.jobs()
	newest := &jobs[len(jobs)-1]
	secret := &corev1.Secret{}
	if err := w.Get(w.t.Context(), client.ObjectKey{Namespace: "acme", Name: newest.Name}, secret); err != nil {
		w.t.Fatal(err)
	}
	q, err := release.ParseRequest(secret.Data[release.RequestKey])
	if err != nil {
		w.t.Fatal(err)
	}
	return newest, q
}

// After all retries a Job of its own makes a failed release good. It is repeated when it dies.
func TestRetries(t *testing.T) {
	c := newCollector()
	c.Spec.Install = &sondev1.CollectorAction{Retries: new(int32(1))}
	w := newWorld(t, c)
	failed := release.Report{Outcome: release.Retry, Reason: release.ReasonNotReady, Message: "crashes"}
	for i, tc := range []struct {
		remedy release.Remedy
		skip   bool
		report release.Report
	}{
		{report: failed},
		{report: failed},
		{remedy: release.Uninstall, report: failed},
		{remedy: release.Uninstall, skip: true, report: release.Report{Outcome: release.Stalled, Remediated: release.Uninstalled}},
	} {
		w.pass()
		job, q := w.request()
		if q.Remedy != tc.remedy || q.SkipHooks != tc.skip {
			t.Fatalf("attempt %d: remedy %q, without hooks %t; want %q, %t", i+1, q.Remedy, q.SkipHooks, tc.remedy, tc.skip)
		}
		w.end(job, tc.report)
		c = w.pass()
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
	}
	want(t, c, sondev1.ConditionStalled, "True", release.ReasonNotReady)
	want(t, c, sondev1.ConditionRemediated, "True", sondev1.ReasonUninstalled)
	w.quiet("when it is stalled")
}

// A Collector says what to do about a failed upgrade.
func TestRemedyOfAnUpgrade(t *testing.T) {
	for remediation, want := range map[sondev1.CollectorRemediation]release.Remedy{"": release.Rollback, sondev1.RemediationRollback: release.Rollback, sondev1.RemediationUninstall: release.Uninstall} {
		c := newCollector()
		c.Spec.Upgrade = &sondev1.CollectorAction{Remediation: remediation}
		c.Status.Revision, c.Status.Failures = 3, defaultRetries+1
		if q := BuildRequest(c, &corev1.ConfigMap{}); q.Remedy != want {
			t.Errorf("%q: %q, want %q", remediation, q.Remedy, want)
		}
		// A rollback can fail after the old revision is superseded, and before the new one is deployed.
		c.Status.Revision, c.Status.History = 0, []sondev1.CollectorRevision{{Revision: 5, Status: "pending-rollback"}, {Revision: 4, Status: "failed"}, {Revision: 3, Status: "superseded"}}
		if q := BuildRequest(c, &corev1.ConfigMap{}); q.Remedy != want {
			t.Errorf("%q, no revision is deployed: %q, want %q", remediation, q.Remedy, want)
		}
		c.Status.History = []sondev1.CollectorRevision{{Revision: 1, Status: "failed"}}
		if q := BuildRequest(c, &corev1.ConfigMap{}); q.Remedy != release.Uninstall {
			t.Errorf("%q, no revision was ready: %q", remediation, q.Remedy)
		}
	}
}

// The cache of Jobs may lag behind that of Collectors. No second Job starts.
func TestJobThatTheCacheLacks(t *testing.T) {
	w := newWorld(t, newCollector())
	w.pass()
	w.Own = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	})
	want(t, w.pass(), sondev1.ConditionReconciling, "True", sondev1.ReasonReleasing)
	if n := len(w.jobs()); n != 1 {
		t.Errorf("%d Jobs", n)
	}
}

// Users may write any number of Pods with the operator's label into their namespace: a pass must not copy them all.
func TestPassCopiesNoPodsOfOthers(t *testing.T) {
	w := newWorld(t, newCollector())
	all, lists := w.Own, 0
	w.Own = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*corev1.PodList); ok {
				lists++
				if o := (&client.ListOptions{}).ApplyOptions(opts); o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy {
					t.Error("a pass copies all Pods of the namespace")
				}
			}
			return all.List(ctx, list, opts...)
		},
	})
	if w.pass(); lists == 0 {
		t.Error("a pass reads no Pods")
	}
}

// A release stays ready while its objects are looked at, also if the cache lacks the Job that looks.
func TestReadyWhileLookedAt(t *testing.T) {
	c := newCollector()
	c.Spec.Drift = sondev1.DriftRepair
	w := newWorld(t, c)
	w.pass()
	w.end(&w.jobs()[0], release.Report{Outcome: release.Ready, Revision: 1})
	w.pass()
	w.clock.SetTime(w.clock.Now().Add(defaultInterval))
	want(t, w.pass(), sondev1.ConditionReady, "True", sondev1.ReasonUpToDate)
	if n := len(w.jobs()); n != 2 {
		t.Fatalf("%d Jobs, want a second one", n)
	}
	all := w.Own
	w.Own = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := all.List(ctx, list, opts...); err != nil {
				return err
			}
			if jobs, ok := list.(*batchv1.JobList); ok {
				jobs.Items = jobs.Items[:1]
			}
			return nil
		},
	})
	want(t, w.pass(), sondev1.ConditionReady, "True", sondev1.ReasonUpToDate)
	if n := len(w.jobs()); n != 2 {
		t.Errorf("%d Jobs", n)
	}
}

// A retry that is asked for while a Job runs is followed by one more Job, which reads the values again.
func TestRetryWhileAJobRuns(t *testing.T) {
	w := newWorld(t, newCollector())
	c := w.pass()
	c.Annotations[sondev1.AnnotationRetry] = "now"
	if err := w.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, after := range []struct {
		jobs   int // one that has ended is deleted when the next one has
		ready  metav1.ConditionStatus
		reason string
	}{{2, "False", sondev1.ReasonReleasing}, {1, "True", sondev1.ReasonUpToDate}} {
		w.pass()
		newest, _ := w.request()
		w.end(newest, release.Report{Outcome: release.Ready, Revision: 1})
		want(t, w.pass(), sondev1.ConditionReady, after.ready, after.reason)
		if got := len(w.jobs()); got != after.jobs {
			t.Fatalf("%d Jobs, want %d", got, after.jobs)
		}
	}
	w.quiet("after the retry")
}

// A release whose last Job someone has deleted is looked at after the interval, and at once if its anchor is gone, too.
func TestDeletedJob(t *testing.T) {
	w := newWorld(t, newCollector())
	w.pass()
	job, q := w.request()
	w.end(job, release.Report{Outcome: release.Ready, Revision: 1})
	w.pass()
	remove := func(o client.Object) {
		t.Helper()
		if err := w.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want int, when string) {
		t.Helper()
		w.pass()
		if n := len(w.jobs()); n != want {
			t.Errorf("%d Jobs %s, want %d", n, when, want)
		}
	}
	remove(&w.jobs()[0])
	check(0, "at once")
	w.clock.SetTime(w.clock.Now().Add(defaultInterval))
	check(1, "after the interval")
	remove(&w.jobs()[0])
	check(1, "if the Job had not ended")
	job, _ = w.request()
	w.end(job, release.Report{Outcome: release.Ready, Revision: 1})
	w.pass()
	remove(&w.jobs()[0])
	remove(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: anchorPrefix + q.Release}})
	check(1, "without the anchor")
}

// TestDeletedJobBesideAnEarlierOne: the report of the earlier one, which a finalizer keeps, is not taken again.
func TestDeletedJobBesideAnEarlierOne(t *testing.T) {
	w := newWorld(t, newCollector())
	w.pass()
	first, _ := w.request()
	w.end(first, release.Report{Outcome: release.Ready, Revision: 1})
	w.pass()
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(first), first); err != nil {
		t.Fatal(err)
	}
	first.Finalizers = []string{"example.com/kept"}
	if err := w.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	c := w.pass()
	c.Annotations[sondev1.AnnotationRetry] = "again"
	if err := w.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.pass()
	second := &w.jobs()[1]
	w.end(second, release.Report{Outcome: release.Ready, Revision: 2})
	w.pass()
	if err := w.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if c := w.pass(); c.Status.Revision != 2 || c.Status.ReportedJob != second.Name || second.Name == first.Name {
		t.Errorf("revision %d of Job %s, want 2 of %s", c.Status.Revision, c.Status.ReportedJob, second.Name)
	}
	if n := len(w.jobs()); n != 1 {
		t.Errorf("%d Jobs, want the earlier one alone", n)
	}
}

// A spec that was never released is not ready because nothing may run.
func TestSuspendedChangeIsNotReady(t *testing.T) {
	w := newWorld(t, newCollector())
	w.pass()
	w.end(&w.jobs()[0], release.Report{Outcome: release.Ready, Revision: 1})
	c := w.pass()
	want(t, c, sondev1.ConditionReady, "True", sondev1.ReasonUpToDate)
	c.Generation, c.Spec.Cluster, c.Spec.Suspend = c.Generation+1, "west", true
	w.sign(c)
	if err := w.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	want(t, w.pass(), sondev1.ConditionReady, "False", sondev1.ReasonSuspended)
}

// Whatever forbids a run is said, and no Job is created.
func TestForbidden(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(w *world)
		objects []client.Object
		reason  string
		message string
	}{
		"closed":  {change: func(w *world) { w.closed = true }, reason: sondev1.ReasonNamespaceNotOpened, message: "kubectl sonde collector open -n acme"},
		"revoked": {change: func(w *world) { w.denied = true }, reason: sondev1.ReasonAccessRevoked, message: "no right. If the spec is still wanted, let someone who may create Jobs in namespace acme run kubectl annotate collector mine -n acme"},
		"taken": {objects: []client.Object{
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "sonde-collector-collector-prod", Labels: map[string]string{sondev1.LabelKind: "Collector", sondev1.LabelUID: "c-2"}, Annotations: map[string]string{sondev1.AnnotationOwner: "acme/hers"}}},
			&sondev1.Collector{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "hers", UID: "c-2"}},
		}, reason: sondev1.ReasonReleaseNameTaken, message: "Collector acme/hers"},
		"a user's ConfigMap": {objects: []client.Object{
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "sonde-collector-collector-prod"}},
		}, reason: sondev1.ReasonReleaseNameTaken, message: "which no Collector made"},
		"opted out": {objects: []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme", UID: uidOf("acme"), Labels: map[string]string{sondev1.LabelOptOut: "true"}}}}, reason: sondev1.ReasonOptedOut, message: "ask them to remove it"},
		"no namespace": {change: func(w *world) {
			if err := w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme"}}); err != nil {
				t.Fatal(err)
			}
		}, reason: sondev1.ReasonNamespaceReplaced, message: "does not exist"},
		"a namespace that is being deleted": {objects: []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "acme", UID: uidOf("acme"), DeletionTimestamp: new(metav1.NewTime(now)), Finalizers: []string{"kubernetes"},
		}}}, reason: sondev1.ReasonNamespaceReplaced, message: "is being deleted"},
		"another namespace": {
			objects: []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme", UID: "another"}}},
			reason:  sondev1.ReasonNamespaceReplaced, message: "was deleted and created again",
		},
		"another namespace, which is not open": {
			objects: []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme", UID: "another"}}},
			change:  func(w *world) { w.closed, w.denied = true, true }, reason: sondev1.ReasonNamespaceReplaced, message: "was deleted and created again",
		},
		"a stamp of an earlier version": {change: func(w *world) {
			c := &sondev1.Collector{}
			if err := w.Live.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: "mine"}, c); err != nil {
				t.Fatal(err)
			}
			w.signFor(c, "")
			if err := w.Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}, reason: sondev1.ReasonNotAdmitted, message: "did not sign the UID of namespace acme. If the spec is still wanted, let someone who may create Jobs in namespace acme run kubectl annotate collector mine -n acme"},
		"no stamp": {change: func(w *world) { w.Key = []byte(strings.Repeat("x", stamp.KeyBytes)) }, reason: sondev1.ReasonNotAdmitted, message: "kubectl annotate collector mine -n acme"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCollector(), tc.objects...)
			if tc.change != nil {
				tc.change(w)
			}
			c := w.pass()
			want(t, c, sondev1.ConditionStalled, "True", tc.reason)
			if m := condition(c, sondev1.ConditionStalled).Message; !strings.Contains(m, tc.message) {
				t.Errorf("message %q, want %q", m, tc.message)
			}
			if n := len(w.jobs()); n != 0 {
				t.Errorf("%d Jobs", n)
			}
			w.quiet("on the second pass")
		})
	}
}

// The anchor of a Collector that is gone is removed, and the release with it. So a new Collector of the name can begin.
func TestAnchorOfAnEarlierCollector(t *testing.T) {
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "sonde-collector-collector-prod", UID: "old", Labels: map[string]string{sondev1.LabelKind: "Collector", sondev1.LabelUID: "c-0"}, Annotations: map[string]string{sondev1.AnnotationOwner: "acme/mine"}}}
	w := newWorld(t, newCollector(), old)
	want(t, w.pass(), sondev1.ConditionReconciling, "True", sondev1.ReasonReleasing)
	if n := len(w.jobs()); n != 0 {
		t.Fatalf("%d Jobs while the old release is removed", n)
	}
	w.pass()
	if n := len(w.jobs()); n != 1 {
		t.Errorf("%d Jobs after it was removed", n)
	}
}

func TestNames(t *testing.T) {
	c := newCollector()
	c.Spec.Collector.Name, c.Spec.Tenant.Instance = strings.Repeat("a", 40), strings.Repeat("b", 12)
	for _, number := range []int64{1, 1 << 40} {
		if name := runName(c, number); len(name) > 63 || !strings.HasSuffix(name, fmt.Sprint("-", number)) {
			t.Errorf("name %s of %d bytes", name, len(name))
		}
	}
}

// The cache may not have a Collector yet whose Job it has. That Collector's release is not removed.
func TestStaleCacheRemovesNothing(t *testing.T) {
	w := newWorld(t, fromHub(), hubNamespaces...)
	w.deleted.add(w.pass())
	stale := w.Client
	w.Client = interceptor.NewClient(stale.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*sondev1.Collector); ok {
				return apierrors.NewNotFound(sondev1.GroupVersion.WithResource("collectors").GroupResource(), key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*sondev1.CollectorList); ok {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
	if _, err := w.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "acme", Name: "mine"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.removeOrphans(t.Context()); err != nil {
		t.Fatal(err)
	}
	var anchors corev1.ConfigMapList
	if err := stale.List(t.Context(), &anchors); err != nil || len(anchors.Items) != 1 {
		t.Errorf("%d anchors, %v", len(anchors.Items), err)
	}
}

// A Secret that a failed pass has left may hold an older spec. It is not used.
func TestLeftSecretIsReplaced(t *testing.T) {
	c := newCollector()
	left := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: runName(c, 1)}, Data: map[string][]byte{release.RequestKey: []byte("old")}}
	w := newWorld(t, c, left)
	w.pass() // deletes it
	if n := len(w.jobs()); n != 0 {
		t.Errorf("%d Jobs with the old Secret", n)
	}
	w.pass()
	jobs := w.jobs()
	if len(jobs) != 1 {
		t.Fatalf("%d Jobs", len(jobs))
	}
	secret := &corev1.Secret{}
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "acme", Name: jobs[0].Name}, secret); err != nil {
		t.Fatal(err)
	}
	if _, err := release.ParseRequest(secret.Data[release.RequestKey]); err != nil {
		t.Error(err)
	}
}

// TestNameOfTheNextRun: users hold the name of the next Job. The status says how, and the Collector is not looked at more and more often.
func TestNameOfTheNextRun(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "acme", Name: runName(newCollector(), 1)}
	held, ended := meta, &batchv1.Job{ObjectMeta: meta}
	ended.Labels = map[string]string{sondev1.LabelKind: sondev1.CollectorKind, sondev1.LabelUID: string(newCollector().UID)}
	ended.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	held.Finalizers = []string{"example.com/hold"}
	for name, tc := range map[string]struct {
		holder client.Object
		text   string
	}{
		"an ended Job with the labels": {ended, "Job " + meta.Name + " is not of the operator"},
		"a Job":                        {&batchv1.Job{ObjectMeta: meta}, "Job " + meta.Name + " is not of the operator"},
		"a Secret":                     {&corev1.Secret{ObjectMeta: held}, "Secret " + meta.Name + " of an earlier attempt is being deleted: if it stays, remove its finalizers"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector()
			w := newWorld(t, c, tc.holder)
			for _, wait := range []time.Duration{0, anchorDelay, time.Hour} {
				w.clock.SetTime(w.clock.Now().Add(wait))
				result := w.reconcile(c)
				if most := maxClosedDelay; wait == time.Hour && result.RequeueAfter != most || result.RequeueAfter < anchorDelay {
					t.Errorf("after %s the next pass is in %s", wait, result.RequeueAfter)
				}
				reconciling := condition(w.pass(), sondev1.ConditionReconciling)
				if reconciling == nil || !strings.Contains(reconciling.Message, tc.text) {
					t.Errorf("got %+v, want %q", reconciling, tc.text)
				}
			}
			if err := w.Get(t.Context(), client.ObjectKeyFromObject(tc.holder), tc.holder); err != nil {
				t.Fatal(err)
			}
			tc.holder.SetFinalizers(nil)
			if err := w.Update(t.Context(), tc.holder); err != nil {
				t.Fatal(err)
			}
			if err := client.IgnoreNotFound(w.Delete(t.Context(), tc.holder)); err != nil {
				t.Fatal(err)
			}
			w.pass() // deletes the Secret of the refused Job
			w.pass()
			if n := len(w.jobs()); n != 1 {
				t.Errorf("%d Jobs after the name is free, want 1", n)
			}
		})
	}
}

// Looking for drift needs no right of the requester, who may have left.
func TestDriftIsLookedForWithoutTheRequester(t *testing.T) {
	c := newCollector()
	c.Spec.Drift = sondev1.DriftWarn
	w := newWorld(t, c)
	w.pass()
	w.end(&w.jobs()[0], release.Report{Outcome: release.Ready, Revision: 1})
	want(t, w.pass(), sondev1.ConditionReady, "True", sondev1.ReasonUpToDate)
	w.denied = true
	w.clock.SetTime(w.clock.Now().Add(defaultInterval))
	if w.pass(); len(w.jobs()) != 2 {
		t.Errorf("%d Jobs, want a second one", len(w.jobs()))
	}
}

// Jobs that users write with the operator's labels hold no place in the queue.
func TestForgedJobsDoNotCount(t *testing.T) {
	var forged []client.Object
	for i := range 2 * maxRunning {
		forged = append(forged, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "eve", Name: fmt.Sprint("job-", i), Labels: map[string]string{sondev1.LabelKind: sondev1.CollectorKind, sondev1.LabelUID: fmt.Sprint("u-", i)},
		}})
	}
	w := newWorld(t, newCollector(), forged...)
	want(t, w.pass(), sondev1.ConditionReconciling, "True", sondev1.ReasonReleasing)
}
