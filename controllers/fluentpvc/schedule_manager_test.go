package fluentpvc

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/test/memapi"
)

// watchedKinds are the kinds in the manager's caches.
var watchedKinds = []string{"FluentPVCBinding", "Pod", "PersistentVolumeClaim", "Job", "FluentPVC", "Namespace", "ConfigMap"}

// cached returns what the caches keep of an object, and nil if they do not select it.
func cached(o client.Object) client.Object {
	var kept any = o.DeepCopyObject()
	var err error
	switch o := kept.(type) {
	case *corev1.Pod:
		return target.SlimPod(o)
	case *corev1.PersistentVolumeClaim, *batchv1.Job:
		if o.(client.Object).GetLabels()[sondev1.LabelKind] != KindBinding {
			return nil
		}
		kept, err = stripOwned(o)
	case *sondev1.FluentPVCBinding:
		kept, err = stripBinding(o)
	case *corev1.Namespace:
		return memapi.Metadata(o)
	}
	if err != nil {
		panic(err)
	}
	return kept.(client.Object)
}

// fieldValues returns the values of the cache's indexes.
func fieldValues(o client.Object, name string) []string {
	if name == IndexClaims {
		return claimsOf(o)
	}
	return claimants(o)
}

// replica is one process of the manager. It loses its cache and its work queue when it crashes.
type replica struct {
	s        *schedule
	n        int
	requests *memapi.Requests
	view     *memapi.View
	queue    *memapi.Queue
	r        *Reconciler
	// began is what the manager's cache had when the current pass began.
	began struct {
		paused, ending bool
		users          []corev1.Pod
	}
}

func (m *replica) String() string { return fmt.Sprintf("manager %d", m.n) }

// newReplica starts a manager whose cache lags by up to lag changes.
func (s *schedule) newReplica(lag int) *replica {
	s.replicas++
	m := &replica{s: s, n: s.replicas, view: memapi.NewView(s.api, watchedKinds, cached, fieldValues, lag), queue: memapi.NewQueue(s.clock)}
	m.requests = &memapi.Requests{
		Name: m.String(), Choose: func(verb string, _ memapi.Key, write bool) memapi.Fault { return s.chooseFault(m, verb, write) },
		Refuse: s.refusal, Written: func(verb string, key memapi.Key, err error) { s.afterWrite(m, verb, key, err) },
		Deleted: s.checkDeleted, Trace: s.Trace,
	}
	fromCache, live := m.client(false), m.client(true)
	m.r = &Reconciler{
		Client: fromCache, Own: fromCache, Live: live, PauseConfig: fromCache, Key: key, Namespace: operatorNamespace,
		Verify:    func(*sondev1.FluentPVC) error { return nil },
		Permitted: func(context.Context, authorizationv1.ResourceAttributes) (bool, error) { return !s.forbidden, nil },
		Recorder:  &events.FakeRecorder{}, Clock: s.clock,
	}
	if s.mutate != nil {
		s.mutate(m)
	}
	for _, kind := range watchedKinds {
		for _, o := range memapi.Of[client.Object](m.view.Objects, kind) {
			m.wakeBy(memapi.Change{Key: memapi.KeyFor(kind, o.GetNamespace(), o.GetName()), Now: o})
		}
	}
	s.Trace("%s starts, %d changes late", m, lag)
	return m
}

// wakeBy enqueues what an event wakes, by the handlers and predicates of SetupWithManager.
func (m *replica) wakeBy(c memapi.Change) {
	for _, r := range m.wakesOf(c) {
		m.queue.Add(r.NamespacedName)
	}
}

func (m *replica) wakesOf(c memapi.Change) []reconcile.Request {
	by := func(wake func(context.Context, client.Object) []reconcile.Request) func(client.Object) []reconcile.Request {
		return func(o client.Object) []reconcile.Request { return wake(context.Background(), o) }
	}
	never := func(event.UpdateEvent) bool { return false }
	switch c.Key.Kind {
	case "FluentPVCBinding":
		return memapi.Mapped(c, predicate.Funcs{UpdateFunc: bindingChanged}, func(o client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
		})
	case "Pod":
		return memapi.Mapped(c, predicate.Funcs{UpdateFunc: slim.PodChanged}, by(m.r.bindingsOf))
	case "FluentPVC":
		return memapi.Mapped(c, predicate.Funcs{UpdateFunc: never, DeleteFunc: func(event.DeleteEvent) bool { return false }}, by(m.r.waiting))
	case "Namespace":
		return memapi.Mapped(c, predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false }}, by(m.r.bindingsIn))
	case "PersistentVolumeClaim", "Job":
		return memapi.Mapped(c, predicate.Funcs{}, by(m.r.ownerOf))
	default:
		return memapi.Mapped(c, predicate.Funcs{}, by(m.r.waiting))
	}
}

// applyNext lets an informer apply the next change of its kind. The event may come twice.
func (m *replica) applyNext(i *memapi.Informer, twice bool) {
	if c, ok := m.view.Next(i); ok {
		m.wakeBy(c)
		if twice {
			m.wakeBy(c)
		}
	}
}

// relist lets an informer go from one list to the next.
func (m *replica) relist(i *memapi.Informer) {
	changes, _ := m.view.Relist(i)
	for _, c := range changes {
		if c, ok := m.view.Store(c); ok {
			m.wakeBy(c)
		}
	}
}

// catchUp lets all informers apply the changes up to a time.
func (m *replica) catchUp(before time.Time) {
	for _, i := range m.view.Informers {
		for m.view.Behind(i, before) {
			m.applyNext(i, false)
		}
	}
}

// ending reports whether the cache has a namespace that is being deleted.
func (m *replica) ending(namespace string) bool {
	ns, ok := m.view.Objects[memapi.KeyFor("Namespace", "", namespace)]
	return ok && !ns.GetDeletionTimestamp().IsZero()
}

// reconcile makes one pass over a claim.
func (m *replica) reconcile(key types.NamespacedName) {
	m.queue.Start(key)
	outer := m.began
	m.began.paused = m.view.Objects[pauseKey] != nil
	m.began.ending = m.ending(key.Namespace)
	m.began.users, _ = podsOf(context.Background(), memapi.Reader{View: m.view}, key.Namespace, key.Name)
	res, err := m.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: key})
	m.began = outer
	m.queue.Finish(key, res, err)
	if !m.requests.Dead {
		m.s.Trace("%s reconciled %s: again after %v, %v", m, key.Name, res.RequeueAfter, err)
	}
}

// replicaClient is the manager's client, which can evict.
type replicaClient struct {
	memapi.Client

	s *schedule
}

func (m *replica) client(live bool) replicaClient {
	return replicaClient{memapi.Client{Requests: m.requests, View: m.view, Live: live}, m.s}
}

func (c replicaClient) SubResource(string) client.SubResourceClient { return evictions{c: c} }

// evictions evicts Pods, unless a PodDisruptionBudget keeps them.
type evictions struct {
	client.SubResourceClient

	c replicaClient
}

func (e evictions) Create(_ context.Context, pod, o client.Object, _ ...client.SubResourceCreateOption) error {
	s, k := e.c.s, e.c.s.api.KeyOf(pod)
	return e.c.Requests.Call("evict", k, true, func() error {
		there := s.api.Objects[k]
		uid := o.(*policyv1.Eviction).DeleteOptions.Preconditions.UID
		switch {
		case there == nil:
			return apierrors.NewNotFound(memapi.Resource("Pod"), k.Name)
		case there.GetUID() != *uid:
			return apierrors.NewConflict(memapi.Resource("Pod"), k.Name, fmt.Errorf("it has another UID"))
		case s.budget:
			return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
		}
		s.deletePod(k)
		return nil
	})
}
