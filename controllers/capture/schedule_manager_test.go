package capture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/podwatch"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/test/memapi"
)

// replica is one process of the manager, as internal/operator/wiring assembles it. It loses its cache and its work queue when
// it crashes.
type replica struct {
	s        *schedule
	n        int
	requests *memapi.Requests
	view     *memapi.View
	r        *Reconciler

	queue    *memapi.Queue
	sweepAt  time.Time
	sweeping bool
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
		s: s, n: s.replicas, view: memapi.NewView(s.api, watchedKinds, cached, fieldValues, lag), queue: memapi.NewQueue(s.clock), sweepAt: s.clock.Now(),
		unaware: map[unawareOf]bool{}, skipped: map[int]bool{}, podsFrom: max(len(s.api.Log)-lag, 0),
	}
	m.requests = &memapi.Requests{
		Name: m.String(), Choose: func(verb string, key memapi.Key, write bool) memapi.Fault { return s.chooseFault(m, verb, key, write) },
		Arrives: m.arrives, Written: m.written,
		Deleted: func(o client.Object) { s.checkDeleted(m, o) }, Trace: s.Trace,
	}
	fromCache, live := m.client(false), m.client(true)
	reviews := replicaReviews{m}
	watchdog := &health.Watchdog{Limit: time.Hour, Clock: s.clock}
	m.r = &Reconciler{
		Kind:   PacketCaptures(nil),
		Client: fromCache, Live: live, PauseConfig: live,
		Options: agentjob.Options{Namespace: operatorNamespace, Image: "sonde:test", RingBytes: 32 << 20},
		Stamps:  StampKey(scheduleKey), Key: scheduleKey, Access: reviews, recent: access.NewCached(reviews, s.clock, RecentFor(DefaultAccessReviewInterval)),
		Keepers: replicaKeepers{m}, Users: &KeeperUsers{}, Recorder: &events.FakeRecorder{}, Clock: s.clock,
		Ceilings:             s.ceilings,
		Sweeper:              &sweep.Sweeper{Client: fromCache, Live: live, Clock: s.clock, Interval: sweep.DefaultInterval, Namespace: operatorNamespace, Parallelism: 1, Watchdog: watchdog},
		Parallelism:          1,
		AccessReviewInterval: DefaultAccessReviewInterval, Watchdog: watchdog,
		throttle: newThrottle(s.clock), departed: &departedPods{}, PodWatch: podwatch.New(s.clock, s.led()),
	}
	m.r.PodWatch.Listed()
	if s.mutate != nil {
		s.mutate(m)
	}
	for _, o := range memapi.Of[client.Object](m.view.Objects, "PacketCapture") {
		m.queue.Add(client.ObjectKeyFromObject(o))
	}
	for _, kind := range watchedKinds[1:] {
		for _, o := range memapi.Of[client.Object](m.view.Objects, kind) {
			m.record(memapi.Change{Key: s.api.KeyOf(o), Now: o})
			for _, r := range m.wakesOf(memapi.Change{Key: s.api.KeyOf(o), Now: o}) {
				m.queue.Add(r.NamespacedName)
			}
		}
	}
	s.Trace("%s starts, %d changes late", m, lag)
	return m
}

// led is when a leader last renewed the lease.
func (s *schedule) led() time.Time {
	if s.leader != nil && !s.leader.requests.Dead {
		return s.clock.Now()
	}
	return s.leaderUntil
}

// nextTimer is when the next timer of this manager is due.
func (m *replica) nextTimer() time.Time { return earlier(m.sweepAt, m.queue.NextTimer()) }

// reconcile does one pass over a capture, and enqueues it again as controller-runtime does.
func (m *replica) reconcile(key types.NamespacedName) {
	m.queue.Start(key)
	since, podsAt := m.since, m.podsAt
	m.since, m.podsAt = m.s.Steps, m.view.Informer("Pod").At
	res, err := m.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: key})
	m.since, m.podsAt = since, podsAt
	m.queue.Finish(key, res, err)
	if !m.requests.Dead {
		m.s.Trace("%s reconciled %s: again after %v, %v", m, key, res.RequeueAfter, err)
	}
}

// sweep does what the timer of Sweeper.Start does.
func (m *replica) sweep() {
	m.sweepAt = m.s.clock.Now().Add(m.r.Sweeper.Interval)
	m.sweeping = true
	since := m.since
	m.since = m.s.Steps
	err := m.r.Sweeper.All(context.Background())
	m.since = since
	m.sweeping = false
	m.s.Trace("%s swept: %v", m, err)
}

// written records a write, and checks what it did.
func (m *replica) written(verb string, key memapi.Key, err error) {
	if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) { // it wrote nothing; how many there are depends on how stale the cache is
		m.s.writes[key.Kind]++
	}
	m.s.afterWrite(m, verb, key, err)
}

// arrives lets the user change an annotation before each request about a capture.
func (m *replica) arrives(key memapi.Key) {
	if m.s.annotates && key.Kind == "PacketCapture" {
		memapi.Edit(m.s.api, key, func(pc *sondev1.PacketCapture) {
			metav1.SetMetaDataAnnotation(&pc.ObjectMeta, "mine", strconv.Itoa(m.s.api.Version))
		})
	}
}

// replicaClient is the manager's client.
type replicaClient struct{ memapi.Client }

func (m *replica) client(live bool) replicaClient {
	return replicaClient{memapi.Client{Requests: m.requests, View: m.view, Live: live}}
}

func (c replicaClient) Get(ctx context.Context, name client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*appsv1.Deployment); ok { // caches have its metadata alone
		return c.GetFrom(c.View.Server.Objects, name, o)
	}
	// Whether a node exists is read without faults: the seeds that once found bugs must go on as before.
	if metadata, ok := o.(*metav1.PartialObjectMetadata); ok && metadata.Kind == "Node" && !c.Requests.Dead {
		return c.View.Server.Objects.Get(c.Scheme(), name, o)
	}
	return c.Client.Get(ctx, name, o, opts...)
}

// replicaReviews reviews the rights of the model's users.
type replicaReviews struct{ m *replica }

func (r replicaReviews) ReviewPods(_ context.Context, _ string, _ access.Requester, namespace string) (access.Decision, error) {
	var d access.Decision
	err := r.m.requests.Call("review", memapi.KeyFor("Pod", namespace, ""), false, func() error {
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
	if k.m.requests.Dead {
		return memapi.ErrDead
	}
	err := k.m.s.stopAt(podIP, secret, reason)
	k.m.s.Trace("%s asks keeper %s to end for %s: %v", k.m, podIP, reason, memapi.ErrText(err))
	return err
}

func (k replicaKeepers) Progress(context.Context, string, string) (account.Account, error) {
	return account.Account{}, errors.New("no capture of a schedule names interfaces")
}

func (k replicaKeepers) Recount(_ context.Context, podIP, _ string) (account.Account, error) {
	if k.m.requests.Dead {
		return account.Account{}, memapi.ErrDead
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
