package capture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/podwatch"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// errDead is the answer to every request of a crashed manager.
var errDead = errors.New("the manager is dead")

// replica is one process of the manager, as internal/operator/wiring assembles it. It loses its cache and its work queue when
// it crashes.
type replica struct {
	s    *schedule
	n    int
	dead bool
	view *view
	r    *Reconciler

	queue    []types.NamespacedName
	timers   map[types.NamespacedName]time.Time
	failures map[types.NamespacedName]int
	busy     map[types.NamespacedName]bool
	sweepAt  time.Time
	sweeping bool
	// noRequeue makes it a mutant that ignores RequeueAfter.
	noRequeue bool
	// forgetful makes it a mutant that records no Pod that departs.
	forgetful bool
	// silent makes it a mutant that does not note that Pods were listed again.
	silent bool
	// since is the step at which the current pass began. podsAt is the change of the log up to which the cache had the Pods then,
	// and podsFrom the one from which on this manager has watched them.
	since, podsAt, podsFrom int
	unaware                 map[unawareOf]bool
	// skipped are changes of the log that the watch of Pods never delivered, before the last of them.
	skipped map[int]bool
}

func (m *replica) String() string { return fmt.Sprintf("manager %d", m.n) }

// newReplica starts a manager whose cache lags by up to lag changes.
func (s *schedule) newReplica(lag int) *replica {
	s.replicas++
	m := &replica{
		s: s, n: s.replicas, view: newView(s.api, lag), sweepAt: s.clock.Now(),
		timers: map[types.NamespacedName]time.Time{}, failures: map[types.NamespacedName]int{}, busy: map[types.NamespacedName]bool{},
		unaware: map[unawareOf]bool{}, skipped: map[int]bool{}, podsFrom: max(len(s.api.log)-lag, 0),
	}
	cached, live := replicaClient{m: m}, replicaClient{m: m, live: true}
	reviews := replicaReviews{m}
	watchdog := &health.Watchdog{Limit: time.Hour, Clock: s.clock}
	m.r = &Reconciler{
		Kind:   PacketCaptures(nil),
		Client: cached, Live: live, PauseConfig: live,
		Options: agentjob.Options{Namespace: operatorNamespace, Image: "sonde:test", RingBytes: 32 << 20},
		Stamps:  StampKey(scheduleKey), Access: reviews, recent: access.NewCached(reviews, s.clock, RecentFor(DefaultAccessReviewInterval)),
		Keepers: replicaKeepers{m}, Users: &KeeperUsers{}, Recorder: &events.FakeRecorder{}, Clock: s.clock,
		Ceilings:             s.ceilings,
		Sweeper:              &sweep.Sweeper{Client: cached, Live: live, Clock: s.clock, Interval: sweep.DefaultInterval, Namespace: operatorNamespace, Parallelism: 1, Watchdog: watchdog},
		Parallelism:          1,
		AccessReviewInterval: DefaultAccessReviewInterval, Watchdog: watchdog,
		throttle: newThrottle(s.clock), departed: &departedPods{}, PodWatch: podwatch.New(s.clock, s.led()),
	}
	m.r.PodWatch.Listed()
	if s.mutate != nil {
		s.mutate(m)
	}
	for _, o := range of[client.Object](m.view.objects, "PacketCapture") {
		m.wake(client.ObjectKeyFromObject(o))
	}
	for _, kind := range watchedKinds[1:] {
		for _, o := range of[client.Object](m.view.objects, kind) {
			m.record(change{key: s.api.keyOf(o), now: o})
			for _, r := range m.wakesOf(change{key: s.api.keyOf(o), now: o}) {
				m.wake(r.NamespacedName)
			}
		}
	}
	s.trace("%s starts, %d changes late", m, lag)
	return m
}

// led is when a leader last renewed the lease.
func (s *schedule) led() time.Time {
	if s.leader != nil && !s.leader.dead {
		return s.clock.Now()
	}
	return s.leaderUntil
}

func (m *replica) wake(key types.NamespacedName) {
	if !slices.Contains(m.queue, key) {
		m.queue = append(m.queue, key)
	}
}

// due enqueues the captures whose timers are due.
func (m *replica) due() {
	for _, c := range m.s.captureKeys() {
		if at, ok := m.timers[c]; ok && !m.s.clock.Now().Before(at) {
			delete(m.timers, c)
			m.wake(c)
		}
	}
}

// nextTimer is when the next timer of this manager is due.
func (m *replica) nextTimer() time.Time {
	next := m.sweepAt
	for _, at := range m.timers {
		next = earlier(next, at)
	}
	return next
}

// reconcile does one pass over a capture, and enqueues it again as controller-runtime does.
func (m *replica) reconcile(key types.NamespacedName) {
	m.queue = slices.DeleteFunc(m.queue, func(k types.NamespacedName) bool { return k == key })
	delete(m.timers, key)
	m.busy[key] = true
	since, podsAt := m.since, m.podsAt
	m.since, m.podsAt = m.s.steps, m.view.informers[slices.Index(watchedKinds, "Pod")].at
	res, err := m.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: key})
	m.since, m.podsAt = since, podsAt
	delete(m.busy, key)
	if m.dead {
		return
	}
	m.s.trace("%s reconciled %s: again after %v, %v", m, key, res.RequeueAfter, err)
	switch {
	case err != nil:
		backoff := min(5*time.Millisecond<<min(m.failures[key], 20), 1000*time.Second)
		m.failures[key]++
		m.timers[key] = m.s.clock.Now().Add(backoff)
	case m.noRequeue:
	case res.RequeueAfter > 0:
		delete(m.failures, key)
		m.timers[key] = m.s.clock.Now().Add(res.RequeueAfter)
	default:
		delete(m.failures, key)
	}
}

// sweep does what the timer of Sweeper.Start does.
func (m *replica) sweep() {
	m.sweepAt = m.s.clock.Now().Add(m.r.Sweeper.Interval)
	m.sweeping = true
	since := m.since
	m.since = m.s.steps
	err := m.r.Sweeper.All(context.Background())
	m.since = since
	m.sweeping = false
	m.s.trace("%s swept: %v", m, err)
}

// call sends one request to the API server, with the faults that the schedule chooses.
func (m *replica) call(verb string, key objectKey, write bool, do func() error) error {
	if m.dead {
		return errDead
	}
	s := m.s
	f := s.chooseFault(m, verb, key, write)
	if f.before != nil {
		f.before()
		if m.dead {
			s.trace("%s dies before %s %s", m, verb, key)
			return errDead
		}
	}
	if f.err != nil && !f.done {
		s.trace("%s %s %s: %s", m, verb, key, f.name)
		return f.err
	}
	if s.annotates && key.kind == "PacketCapture" {
		edit(s.api, key, func(pc *sondev1.PacketCapture) {
			metav1.SetMetaDataAnnotation(&pc.ObjectMeta, "mine", strconv.Itoa(s.api.version))
		})
	}
	err := do()
	if write {
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) { // it wrote nothing; how many there are depends on how stale the cache is
			s.writes[key.kind]++
		}
		s.trace("%s %s %s: %v", m, verb, key, errText(err))
		s.afterWrite(m, verb, key, err)
	}
	if f.after != nil {
		f.after()
		if m.dead {
			s.trace("%s dies after %s %s", m, verb, key)
			return errDead
		}
	}
	if f.err != nil {
		s.trace("%s %s %s: done, but %s", m, verb, key, f.name)
		return f.err
	}
	return err
}

func errText(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}

// replicaClient is the manager's client: reads come from its cache, or live.
type replicaClient struct {
	client.Client // nil: calls that the manager must not make panic
	m             *replica
	live          bool
	stale         bool // a mutant: live reads come from the cache
}

func (c replicaClient) Scheme() *runtime.Scheme { return c.m.s.api.scheme }

func (c replicaClient) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, c.m.s.api.scheme)
}

func (c replicaClient) objects() objectSet {
	if c.live && !c.stale {
		return c.m.s.api.objects
	}
	return c.m.view.objects
}

func (c replicaClient) Get(_ context.Context, name client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	objects := c.objects()
	if _, ok := o.(*appsv1.Deployment); ok {
		objects = c.m.s.api.objects // caches have its metadata alone
	}
	read := func() error { return objects.get(c.m.s.api.scheme, name, o) }
	if !c.live {
		if c.m.dead {
			return errDead
		}
		return read()
	}
	o.SetNamespace(name.Namespace)
	o.SetName(name.Name)
	return c.m.call("get", keyOf(c.m.s.api.scheme, o), false, read)
}

func (c replicaClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	read := func() error { return c.objects().list(c.m.s.api.scheme, list, opts...) }
	if !c.live {
		if c.m.dead {
			return errDead
		}
		return read()
	}
	gvk, err := apiutil.GVKForObject(list, c.m.s.api.scheme)
	if err != nil {
		return err
	}
	return c.m.call("list", objectKey{kind: gvk.Kind}, false, read)
}

func (c replicaClient) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return c.m.call("create", c.m.s.api.keyOf(o), true, func() error { return c.m.s.api.create(o) })
}

func (c replicaClient) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	var uid *types.UID
	if options.Preconditions != nil {
		uid = options.Preconditions.UID
	}
	key := c.m.s.api.keyOf(o)
	return c.m.call("delete", key, true, func() error {
		there := c.m.s.api.objects[key]
		err := c.m.s.api.delete(key, uid)
		if err == nil {
			c.m.s.checkDeleted(c.m, there)
		}
		return err
	})
}

func (c replicaClient) Status() client.SubResourceWriter { return replicaStatus{c: c} }

type replicaStatus struct {
	client.SubResourceWriter
	c replicaClient
}

func (w replicaStatus) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	m := w.c.m
	return m.call("patch status of", m.s.api.keyOf(o), true, func() error { return m.s.api.patchStatus(o, p) })
}

// replicaReviews reviews the rights of the model's users.
type replicaReviews struct{ m *replica }

func (r replicaReviews) ReviewPods(_ context.Context, _ string, _ access.Requester, namespace string) (access.Decision, error) {
	var d access.Decision
	err := r.m.call("review", objectKey{"Pod", namespace, ""}, false, func() error {
		d = access.Decision{Allowed: !r.m.s.denied[namespace], Reason: "the right was taken"}
		return nil
	})
	return d, err
}

func (r replicaReviews) ReviewNodes(context.Context, string, access.Requester) (access.Decision, error) {
	return access.Decision{Allowed: true}, nil
}

// replicaKeepers calls the model's keepers.
type replicaKeepers struct{ m *replica }

func (k replicaKeepers) Stop(_ context.Context, podIP, secret, reason string) error {
	if k.m.dead {
		return errDead
	}
	err := k.m.s.stopAt(podIP, secret, reason)
	k.m.s.trace("%s asks keeper %s to end for %s: %v", k.m, podIP, reason, errText(err))
	return err
}

func (k replicaKeepers) Progress(context.Context, string, string) (account.Account, error) {
	return account.Account{}, errors.New("no capture of a schedule names interfaces")
}

func (k replicaKeepers) Recount(_ context.Context, podIP, _ string) (account.Account, error) {
	if k.m.dead {
		return account.Account{}, errDead
	}
	return k.m.s.recountAt(podIP)
}

// ceilingsOf returns the ceilings of a schedule, sometimes low ones.
func (s *schedule) ceilingsOf() ceiling.Limits {
	var l ceiling.Limits
	if s.rand.IntN(4) == 0 {
		l.ProbesPerNode = 1 + s.rand.IntN(2)
	}
	if s.rand.IntN(6) == 0 {
		l.PodsPerCapture = 1 + s.rand.IntN(2)
	}
	if s.rand.IntN(6) == 0 {
		l.CapturesPerNamespace = 1
	}
	// From a source of its own: the seeds that once found bugs must go on as before.
	if own := rand.New(rand.NewPCG(s.seed, 2)); own.IntN(4) == 0 {
		l.ResultsPerNode = 1 + own.IntN(3)
	}
	return l
}
