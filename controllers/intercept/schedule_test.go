package intercept

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/memapi"
)

const (
	sondeSystem = "sonde-system"
	// mostLag is the largest lag of a cache.
	mostLag = 10 * time.Second
	// calmFor is longer than the longest wait between two carriers of a Pod.
	calmFor = 3 * time.Minute
)

var stampKey = []byte("0123456789abcdef0123456789abcdef")

// schedule is one run of the controller in a cluster where everything happens at the worst moment. It is repeatable: its
// randomness comes from the seed, and nothing runs concurrently.
type schedule struct {
	memapi.Record

	rand     *rand.Rand
	clock    *clocktesting.FakeClock
	api      *memapi.Server
	leader   *replica // nil while there is none
	replicas int
	mutate   func(*replica)

	end    *simulated
	lacks  map[string]bool    // the users without the right
	silent map[string]bool    // the users whose right cannot be reviewed
	asked  map[types.UID]bool // the namespaces that an InterceptRequest has named
	pods   int
	users  int64

	faults, disturbances int // chances in 1000 of each call, and how much may still happen
	calm                 bool
}

// simulated is Stowaway with its carriers and clients.
type simulated struct {
	s *schedule
	// identity is nil while no Pod of it runs; manager is the key that it was started with.
	identity *tunnel.Identity
	manager  tunnel.PublicKey
	state    tunnel.State
	// running has the keys of carriers that run, by their Jobs' UIDs.
	running map[types.UID]tunnel.PublicKey
	// lost: the clients are not connected.
	lost bool
}

func (e *simulated) Close() {}

func (e *simulated) reach(o *stowawayObjects) error {
	switch {
	case !e.s.calm && e.s.rand.IntN(1000) < e.s.faults:
		return errors.New("connect to Stowaway: timeout")
	case e.identity == nil, e.identity.Key != o.key, e.manager != o.managerKey, e.service() == nil, e.service().Spec.ClusterIP != o.address:
		return errors.New("connect to Stowaway: refused")
	}
	return nil
}

func (e *simulated) service() *corev1.Service {
	s, _ := e.s.api.Objects[memapi.KeyFor("Service", sondeSystem, tunnel.Name)].(*corev1.Service)
	return s
}

func (e *simulated) Push(_ context.Context, o *stowawayObjects, state tunnel.State) error {
	if err := e.reach(o); err != nil {
		return err
	}
	pods := map[string]bool{}
	for _, c := range state.Carriers {
		if pods[c.Pod] {
			e.s.Fail("two carriers of one Pod in one State")
		}
		pods[c.Pod] = true
	}
	e.s.Trace("Stowaway gets %d routes and %d carriers", len(state.Routes), len(state.Carriers))
	e.state = state
	return nil
}

func (e *simulated) Status(_ context.Context, o *stowawayObjects) (*tunnel.Status, error) {
	if err := e.reach(o); err != nil {
		return nil, err
	}
	status := &tunnel.Status{Generation: e.state.Generation, Routes: map[string]tunnel.RouteStatus{}, Carriers: map[string]tunnel.CarrierStatus{}}
	for _, r := range e.state.Routes {
		status.Routes[r.ID] = tunnel.RouteStatus{Connected: !e.lost, Heartbeat: e.s.clock.Now()}
	}
	for _, c := range e.state.Carriers {
		connected := false
		for _, j := range memapi.Of[*batchv1.Job](e.s.api.Objects, "Job") {
			connected = connected || j.Labels[sondev1.LabelTargetPodUID] == c.Pod && e.running[j.UID] == c.Key &&
				j.Labels[sondev1.LabelStowaway] == agentjob.StowawayID(o.key, o.address)
		}
		status.Carriers[c.Pod] = tunnel.CarrierStatus{Connected: connected, Steered: []uint16{8080}}
	}
	return status, nil
}

// play lets the kubelet and the controllers of Kubernetes act.
func (s *schedule) play() {
	s.playStowaway()
	for _, j := range memapi.Of[*batchv1.Job](s.api.Objects, "Job") {
		pod := s.agentOf(j)
		switch secret, _ := s.api.Objects[memapi.KeyFor("Secret", sondeSystem, j.Name)].(*corev1.Secret); {
		case len(j.Status.Conditions) > 0:
		case pod == nil:
			s.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: sondeSystem, Name: j.Name + "-" + string(j.UID[:8]), Labels: j.Labels, Annotations: j.Annotations}, Status: corev1.PodStatus{Phase: corev1.PodPending}})
		case s.end.running[j.UID] == "" && secret != nil: // otherwise the volume cannot be mounted
			identity, err := tunnel.ParseIdentity(secret.Data[agentjob.SecretIdentity])
			if err != nil {
				s.Fail("%s: %v", j.Name, err)
				return
			}
			if string(identity.Key) != j.Annotations[sondev1.AnnotationCarrierKey] {
				s.fail(j) // as the carrier does
				continue
			}
			s.end.running[j.UID] = identity.Key
			memapi.Edit(s.api, s.api.KeyOf(pod), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
		}
	}
	for _, p := range memapi.Of[*corev1.Pod](s.api.Objects, "Pod") {
		if p.Namespace == sondeSystem && s.jobOf(p) == nil {
			s.api.Remove(s.api.KeyOf(p))
		}
	}
}

// playStowaway starts and ends Stowaway's Pod.
func (s *schedule) playStowaway() {
	d, _ := s.api.Objects[memapi.KeyFor("Deployment", sondeSystem, tunnel.Name)].(*appsv1.Deployment)
	secret, _ := s.api.Objects[memapi.KeyFor("Secret", sondeSystem, tunnel.Name)].(*corev1.Secret)
	if d == nil {
		s.end.identity, s.end.state = nil, tunnel.State{}
		return
	}
	args := d.Spec.Template.Spec.Containers[0].Args
	if manager := tunnel.PublicKey(args[len(args)-1]); secret != nil && (s.end.identity == nil || s.end.manager != manager) {
		identity, err := tunnel.ParseIdentity(secret.Data[agentjob.SecretStowaway])
		if err != nil {
			s.Fail("Stowaway: %v", err)
			return
		}
		s.end.identity, s.end.manager, s.end.state = identity, manager, tunnel.State{}
	}
}

func (s *schedule) agentOf(j *batchv1.Job) *corev1.Pod {
	p, _ := s.api.Objects[memapi.KeyFor("Pod", sondeSystem, j.Name+"-"+string(j.UID[:8]))].(*corev1.Pod)
	return p
}

func (s *schedule) jobOf(p *corev1.Pod) *batchv1.Job {
	for _, j := range memapi.Of[*batchv1.Job](s.api.Objects, "Job") {
		if s.agentOf(j) == p {
			return j
		}
	}
	return nil
}

// create stores an object of another actor.
func (s *schedule) create(o client.Object) {
	if s.api.Create(o) == nil {
		s.Trace("%s is created", s.api.KeyOf(o))
	}
}

// disturbing are the things that happen.
var disturbing = map[string]func(*schedule){
	"a request":                (*schedule).request,
	"another request":          (*schedule).request,
	"a Pod":                    (*schedule).pod,
	"a request is deleted":     func(s *schedule) { s.remove("InterceptRequest", "") },
	"a Pod is deleted":         func(s *schedule) { s.remove("Pod", "shop") },
	"a Job is deleted":         func(s *schedule) { s.remove("Job", sondeSystem) },
	"a Secret is deleted":      func(s *schedule) { s.remove("Secret", sondeSystem) },
	"a Service is deleted":     func(s *schedule) { s.remove("Service", sondeSystem) },
	"a Deployment is deleted":  func(s *schedule) { s.remove("Deployment", sondeSystem) },
	"a carrier fails":          (*schedule).failCarrier,
	"Stowaway restarts":        func(s *schedule) { s.end.identity = nil },
	"a right is withdrawn":     func(s *schedule) { s.lacks[s.user()] = true },
	"a right is not reviewed":  func(s *schedule) { s.silent[s.user()] = true },
	"rights are reviewed":      func(s *schedule) { s.silent = map[string]bool{} },
	"an hour passes":           func(s *schedule) { s.clock.Step(time.Hour) },
	"a namespace is made anew": (*schedule).makeAnew,
	"a namespace is opted out": func(s *schedule) {
		memapi.Edit(s.api, memapi.KeyFor("Namespace", "", "shop"), func(n *corev1.Namespace) { n.Labels = map[string]string{sondev1.LabelOptOut: "true"} })
	},
}

func (s *schedule) user() string { return fmt.Sprint("user", s.rand.IntN(3)) }

// remove deletes a random object of a kind.
func (s *schedule) remove(kind, namespace string) {
	all := slices.DeleteFunc(memapi.Of[client.Object](s.api.Objects, kind), func(o client.Object) bool { return namespace != "" && o.GetNamespace() != namespace })
	if len(all) > 0 {
		key := s.api.KeyOf(all[s.rand.IntN(len(all))])
		s.Trace("%s is deleted", key)
		s.api.Remove(key)
	}
}

func (s *schedule) failCarrier() {
	jobs := memapi.Of[*batchv1.Job](s.api.Objects, "Job")
	if len(jobs) == 0 {
		return
	}
	s.fail(jobs[s.rand.IntN(len(jobs))])
}

func (s *schedule) fail(j *batchv1.Job) {
	s.Trace("%s fails", j.Name)
	delete(s.end.running, j.UID)
	memapi.Edit(s.api, s.api.KeyOf(j), func(j *batchv1.Job) {
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
	})
}

// request creates an InterceptRequest of a random user.
func (s *schedule) request() { s.requestFor([]string{"1m", "8h"}[s.rand.IntN(2)]) }

func (s *schedule) requestFor(time string) {
	s.requestIn([]string{"shop", "hub"}[s.rand.IntN(2)], time)
}

func (s *schedule) requestIn(namespace, time string) {
	s.pods++
	q := &sondev1.InterceptRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("request-", s.pods)},
		Spec: sondev1.InterceptRequestSpec{
			TargetNamespace: "shop",
			TargetRef:       &sondev1.TargetReference{Kind: sondev1.TargetStatefulSet, Name: "web"}, TargetContainerPort: 8080,
			GracePeriod: "10s", ExpiresAfter: time, ClientKey: fmt.Sprint("client-", s.pods),
		},
	}
	shop := s.api.Objects[memapi.KeyFor("Namespace", "", "shop")]
	claim := stamp.Claim{Requester: access.Requester{Username: s.user()}, TargetNamespaceUID: string(shop.GetUID()), IssuedAt: s.clock.Now()}
	annotations, err := stamp.Sign(stampKey, q.Namespace, sondev1.InterceptKind, &q.Spec, claim)
	if err != nil {
		panic(err)
	}
	q.Annotations = annotations
	s.create(q)
	s.asked[shop.GetUID()] = true
}

// makeAnew deletes the namespace of the Pods with all that is in it, and creates it again with a Pod.
func (s *schedule) makeAnew() {
	for _, kind := range []string{"InterceptRequest", "Pod", "StatefulSet"} {
		for _, o := range memapi.Of[client.Object](s.api.Objects, kind) {
			if o.GetNamespace() == "shop" {
				s.api.Remove(s.api.KeyOf(o))
			}
		}
	}
	s.api.Remove(memapi.KeyFor("Namespace", "", "shop"))
	s.makeShop()
	s.podOn("n1")
}

func (s *schedule) makeShop() {
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	s.create(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
}

// namespaceUID is the annotation of a Pod with its namespace's UID, which tells namespaces of one name apart.
const namespaceUID = "namespace-uid"

// pod creates a Pod of the target, now and then on a node that does not exist.
func (s *schedule) pod() {
	node := "n1"
	if s.rand.IntN(6) == 0 {
		node = "made-up"
	}
	s.podOn(node)
}

func (s *schedule) podOn(node string) {
	s.pods++
	web, shop := s.api.Objects[memapi.KeyFor("StatefulSet", "shop", "web")], s.api.Objects[memapi.KeyFor("Namespace", "", "shop")]
	s.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", s.pods), Annotations: map[string]string{namespaceUID: string(shop.GetUID())}, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: web.GetUID(), Controller: new(true)},
		}},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	})
}

// replica is one process of the manager.
type replica struct {
	s        *schedule
	n        int
	requests *memapi.Requests
	view     *memapi.View
	due      time.Time
	r        *Reconciler
	// forgetful makes a mutant that repeats no pass.
	forgetful bool
}

func (m *replica) String() string { return fmt.Sprintf("manager %d", m.n) }

// watchedKinds are the kinds in the manager's caches.
var watchedKinds = []string{"InterceptRequest", "Pod", "Job", "Secret", "Deployment", "StatefulSet", "Namespace", "ConfigMap"}

func (s *schedule) newReplica(lag int) *replica {
	s.replicas++
	m := &replica{s: s, n: s.replicas, due: s.clock.Now()}
	m.view = memapi.NewView(s.api, watchedKinds, func(o client.Object) client.Object {
		switch o := o.(type) {
		case *corev1.Pod:
			if o.Namespace == sondeSystem {
				return target.SlimAgent(o)
			}
			return target.SlimPod(o)
		case *batchv1.Job:
			return target.SlimJob(o)
		case *sondev1.InterceptRequest, *corev1.ConfigMap:
			return o
		}
		return memapi.Metadata(o)
	}, func(o client.Object, _ string) []string {
		if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
			return []string{string(owner.UID)}
		}
		return nil
	}, lag)
	m.requests = &memapi.Requests{
		Name: m.String(), Choose: func(_ string, _ memapi.Key, write bool) memapi.Fault { return s.chooseFault(m, write) },
		Written: func(verb string, key memapi.Key, err error) { s.afterWrite(verb, key, err) }, Trace: s.Trace,
	}
	fromCache := applier{memapi.Client{Requests: m.requests, View: m.view}}
	m.r = &Reconciler{
		Client: fromCache, Live: memapi.Client{Requests: m.requests, View: m.view, Live: true}, PauseConfig: fromCache,
		Options: agentjob.Options{Namespace: sondeSystem, Image: "image"}, Key: stampKey, Access: reviews{s}, Recent: reviews{s}, Users: s,
		Recorder: &events.FakeRecorder{}, Clock: s.clock, Stowaway: s.end, Watchdog: &health.Watchdog{Limit: time.Hour, Clock: s.clock}, Limits: ceiling.Limits{PodsPerCapture: 3},
	}
	if s.mutate != nil {
		s.mutate(m)
	}
	s.Trace("%s starts, %d changes late", m, lag)
	return m
}

// Assign implements Users.
func (s *schedule) Assign(context.Context, client.Reader, string, types.UID, types.UID) (int64, error) {
	s.users++
	return s.users, nil
}

type reviews struct{ s *schedule }

func (r reviews) ReviewPods(_ context.Context, _ string, who access.Requester, _ string) (access.Decision, error) {
	if r.s.silent[who.Username] {
		return access.Decision{}, errors.New("no answer to the review")
	}
	return access.Decision{Allowed: !r.s.lacks[who.Username], Reason: "no right"}, nil
}

func (r reviews) ReviewNodes(context.Context, string, access.Requester) (access.Decision, error) {
	return access.Decision{}, errors.New("not asked for")
}

// applier is the manager's client, with the little that it needs of server-side apply.
type applier struct{ memapi.Client }

func (a applier) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	meta := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(text, meta); err != nil {
		return err
	}
	created, err := a.Scheme().New(meta.GroupVersionKind())
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, created); err != nil {
		return err
	}
	key := memapi.KeyFor(meta.Kind, meta.Namespace, meta.Name)
	return a.Requests.Call("apply", key, true, func() error {
		server := a.View.Server
		switch o := created.(type) {
		case *corev1.Service:
			o.Spec.ClusterIP = fmt.Sprintf("10.0.%d.%d", server.Version/250%250, server.Version%250+1)
		case *appsv1.Deployment:
			if server.Objects[key] != nil {
				memapi.Edit(server, key, func(there *appsv1.Deployment) { there.Spec = o.Spec })
				return nil
			}
		}
		if server.Objects[key] != nil {
			return nil
		}
		return server.Create(created.(client.Object))
	})
}

func (s *schedule) chooseFault(m *replica, write bool) (f memapi.Fault) {
	if s.calm || s.rand.IntN(1000) >= s.faults {
		return f
	}
	return memapi.RandomFault(s.rand, write, func() { s.crash(m) }, func() {
		if s.leader == m && s.Depth < 2 {
			s.leader = s.newReplica(s.rand.IntN(6))
		}
		s.Meanwhile(s.rand, m, s.step)
	})
}

func (s *schedule) crash(m *replica) {
	m.requests.Dead = true
	if s.leader == m {
		s.leader = nil
	}
}

// afterWrite checks that no Pod has two carriers that run, and none has one that no InterceptRequest for its namespace asked for.
func (s *schedule) afterWrite(verb string, key memapi.Key, err error) {
	if verb != "create" || key.Kind != "Job" || err != nil {
		return
	}
	running := map[string]int{}
	for _, j := range memapi.Of[*batchv1.Job](s.api.Objects, "Job") {
		if uid := j.Labels[sondev1.LabelTargetPodUID]; len(j.Status.Conditions) == 0 {
			if running[uid]++; running[uid] > 1 {
				s.Fail("a Pod has two carriers")
			}
			for _, p := range memapi.Of[*corev1.Pod](s.api.Objects, "Pod") {
				if namespace := types.UID(p.Annotations[namespaceUID]); string(p.UID) == uid && !s.asked[namespace] {
					s.Fail("Pod %s has a carrier, and no InterceptRequest names its namespace %s", p.Name, namespace)
				}
			}
		}
	}
}

func (s *schedule) step() {
	s.Steps++
	switch n := s.rand.IntN(100); {
	case n < 30:
		if s.leader != nil {
			i := s.leader.view.Informers[s.rand.IntN(len(s.leader.view.Informers))]
			for range 1 + s.rand.IntN(4) {
				if _, ok := s.leader.view.Next(i); ok {
					s.leader.due = s.clock.Now()
				}
			}
		}
	case n < 55:
		if m := s.leader; m != nil && !m.due.After(s.clock.Now()) {
			s.reconcile(m)
		}
	case n < 75:
		s.play()
	case n < 83:
		if s.disturbances > 0 {
			s.disturbances--
			names := slices.Sorted(maps.Keys(disturbing))
			name := names[s.rand.IntN(len(names))]
			s.Trace("happens: %s", name)
			disturbing[name](s)
		}
	case n < 98:
		s.clock.Step(time.Duration(s.rand.IntN(2000)) * time.Millisecond)
		s.catchUp(s.clock.Now().Add(-mostLag))
	case s.leader == nil:
		s.leader = s.newReplica(s.rand.IntN(6))
	case s.faults > 0 && s.rand.IntN(2) == 0:
		s.Trace("%s crashes", s.leader)
		s.crash(s.leader)
	}
}

func (s *schedule) catchUp(before time.Time) {
	if m := s.leader; m != nil {
		for _, i := range m.view.Informers {
			for m.view.Behind(i, before) {
				m.view.Next(i)
				m.due = s.clock.Now()
			}
		}
	}
}

func (s *schedule) reconcile(m *replica) {
	m.due = s.clock.Now().Add(1000 * time.Hour)
	result, err := m.r.Reconcile(context.Background(), ctrl.Request{})
	switch {
	case err != nil:
		m.due = s.clock.Now().Add(5 * time.Second)
	case result.RequeueAfter > 0 && !m.forgetful:
		m.due = s.clock.Now().Add(result.RequeueAfter)
	}
	s.Trace("%s made a pass: again after %v, %v", m, result.RequeueAfter, err)
}

// random runs random steps, then a time without faults.
func (s *schedule) random() {
	s.faults = []int{0, 20, 60, 150}[s.rand.IntN(4)]
	s.disturbances = s.rand.IntN(20)
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sondeSystem}})
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hub", Labels: map[string]string{sondev1.LabelHub: "true"}}})
	s.makeShop()
	s.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	for range 1 + s.rand.IntN(3) {
		s.pod()
	}
	s.request()
	s.leader = s.newReplica(0)
	for range 150 + s.rand.IntN(250) {
		if s.step(); s.Broken != "" {
			return
		}
	}
	s.Trace("faults stop")
	s.calm, s.silent = true, map[string]bool{}
	if s.leader == nil {
		s.leader = s.newReplica(0)
	}
	for end := s.clock.Now().Add(calmFor); s.clock.Now().Before(end) && s.Broken == ""; s.clock.Step(time.Second) {
		s.play()
		s.catchUp(s.clock.Now().Add(time.Second))
		if !s.leader.due.After(s.clock.Now()) {
			s.reconcile(s.leader)
		}
	}
	s.checkEnd()
}

// checkEnd checks that what lives is intercepted, and that nothing is left of the rest.
func (s *schedule) checkEnd() {
	wanted := map[string]int{} // Jobs by the Pod's UID
	live := 0
	shop := string(s.api.Objects[memapi.KeyFor("Namespace", "", "shop")].GetUID())
	for _, q := range memapi.Of[*sondev1.InterceptRequest](s.api.Objects, "InterceptRequest") {
		claim, err := stamp.ParseClaim(q.Annotations[sondev1.AnnotationRequester])
		if q.Ended() {
			if c := apimeta.FindStatusCondition(q.Status.Conditions, sondev1.ConditionIntercepted); err == nil && claim.TargetNamespaceUID == shop && c != nil && c.Reason == sondev1.ReasonNamespaceReplaced {
				s.Fail("%s ended as if its namespace had been made anew", q.Name)
			}
			continue
		}
		live++
		if err != nil || s.lacks[claim.Requester.Username] {
			s.Fail("%s lives without the right of its requester (%v)", q.Name, err)
		}
		if claim.TargetNamespaceUID != shop {
			s.Fail("%s lives, although its namespace was made anew", q.Name)
		}
		pods, running := 0, 0
		for _, p := range memapi.Of[*corev1.Pod](s.api.Objects, "Pod") {
			if p.Namespace == "shop" {
				pods++
				if p.Spec.NodeName == "n1" {
					running++
					wanted[string(p.UID)] = 1
				}
			}
		}
		active := 0
		for _, p := range q.Status.Pods {
			if p.Active {
				active++
			} else if p.Message == "" {
				s.Fail("%s: Pod %s is not active, and the status does not say why", q.Name, p.Name)
			}
		}
		if want := min(running, 3); active != want || len(q.Status.Pods) != pods {
			s.Fail("%s is active on %d Pods of %d, want %d of %d", q.Name, active, len(q.Status.Pods), want, pods)
		}
	}
	if len(wanted) > 3 {
		clear(wanted) // which three have a carrier is decided by their history
	}
	have := map[string]int{}
	for _, j := range memapi.Of[*batchv1.Job](s.api.Objects, "Job") {
		uid := j.Labels[sondev1.LabelTargetPodUID]
		if have[uid]++; have[uid] > 1 || live == 0 {
			s.Fail("Pod %s has %d carriers, and %d requests live", uid, have[uid], live)
		}
		if node := j.Annotations[sondev1.AnnotationTargetNode]; node != "n1" {
			s.Fail("Pod %s has a carrier for node %s", uid, node)
		}
	}
	for _, o := range memapi.Of[*corev1.Secret](s.api.Objects, "Secret") {
		if s.api.Objects[memapi.KeyFor("Job", sondeSystem, o.Name)] == nil && o.Name != tunnel.Name {
			s.Fail("Secret %s is left", o.Name)
		}
	}
	for uid := range wanted {
		if have[uid] == 0 {
			s.Fail("Pod %s has no carrier", uid)
		}
	}
	for _, kind := range []string{"Deployment", "Service", "Secret"} {
		if there := s.api.Objects[memapi.KeyFor(kind, sondeSystem, tunnel.Name)] != nil; there != (live > 0) {
			s.Fail("the %s of Stowaway is there: %t, and %d requests live", kind, there, live)
		}
	}
}

func newSchedule(t *testing.T, seed uint64) *schedule {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, sondev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &schedule{rand: rand.New(rand.NewPCG(seed, 1)), clock: clocktesting.NewFakeClock(noon), lacks: map[string]bool{}, silent: map[string]bool{}, asked: map[types.UID]bool{}}
	s.end = &simulated{s: s, running: map[types.UID]tunnel.PublicKey{}}
	s.Record = memapi.Record{Clock: s.clock, Start: noon}
	s.api = memapi.NewServer(scheme, s.clock)
	return s
}

// TestSchedules runs the controller through random schedules of faults.
func TestSchedules(t *testing.T) {
	memapi.Schedules(t, "intercept", func(t *testing.T, seed uint64) *memapi.Record {
		t.Helper()
		s := newSchedule(t, seed)
		s.random()
		return &s.Record
	})
}

// TestSchedulesFindBugs breaks the manager on purpose. Each bug must be found.
func TestSchedulesFindBugs(t *testing.T) {
	for name, tc := range map[string]struct {
		mutate func(*replica)
		want   string // part of the broken invariant
	}{
		"the Secrets of carriers are not deleted": {func(m *replica) {
			m.r.Client = memapi.Mutant{Client: m.r.Client, OnDelete: func(ctx context.Context, c client.Client, o client.Object) error {
				if _, ok := o.(*corev1.Secret); ok && o.GetName() != tunnel.Name {
					return nil
				}
				return c.Delete(ctx, o)
			}}
		}, "is left"},
		"rights are not reviewed again": {func(m *replica) {
			m.r.Recent = reviews{&schedule{}}
		}, "without the right"},
		"Stowaway's Service is not looked for": {func(m *replica) {
			m.r.Live = memapi.Mutant{Client: m.r.Live.(client.Client), OnGet: func(ctx context.Context, c client.Client, key client.ObjectKey, o client.Object) error {
				if _, ok := o.(*corev1.Service); ok && m.r.memory.deployed == "" {
					return nil
				}
				return c.Get(ctx, key, o)
			}}
		}, "the Service of Stowaway is there"},
		"a pass is not repeated": {func(m *replica) { m.forgetful = true }, "is active on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memapi.WantBug(t, tc.want, 1, func(t *testing.T, seed uint64) *memapi.Record {
				t.Helper()
				s := newSchedule(t, seed)
				s.mutate = tc.mutate
				s.random()
				return &s.Record
			})
		})
	}
}
