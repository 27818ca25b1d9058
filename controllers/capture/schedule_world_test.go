package capture

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/test/memapi"
)

// scheduleKey is the webhook's key.
var scheduleKey = bytes.Repeat([]byte("k"), 32)

// nodeState of the model.
type nodeState int

const (
	nodeReady nodeState = iota
	nodeSilent
	nodeGone
)

// mostLag is the largest lag of a cache, in changes.
const mostLag = 10 * time.Second

// schedule is one run of the controllers in a cluster where everything happens at the worst moment. It is repeatable:
// its randomness comes from the seed, and nothing runs concurrently.
type schedule struct {
	memapi.Record

	seed  uint64
	rand  *rand.Rand
	clock *clocktesting.FakeClock
	api   *memapi.Server

	leader *replica // nil while there is none
	// leaderUntil is when the last leader that crashed did so.
	leaderUntil time.Time
	replicas    int
	ceilings    ceiling.Limits
	// annotates makes the user change an annotation of a capture before each request of a manager about it.
	annotates bool
	// only is the name of the only disturbance; empty means all.
	only string
	// mutate breaks a manager on purpose.
	mutate func(*replica)

	nodes    map[string]nodeState
	agents   []*agent
	captures []*captureTruth
	denied   map[string]bool // the right, by namespace
	pods     int
	leaving  []leaving
	binding  []binding
	// boundAt has the Pods that got their node after their creation.
	boundAt map[types.UID]time.Time

	// faults and pauses are the chances in 1000 of each call; disturbances is the number that may still happen.
	faults, pauses, disturbances int
	// calm ends all faults, pauses and disturbances.
	calm bool
	// plan is the only fault of a schedule that is not random.
	plan *singleFault

	writes   map[string]int
	failures int // faults that were injected
	events   int // things that users and the environment did
}

// captureTruth records the user's actions on one capture, and its status so far.
type captureTruth struct {
	key     types.NamespacedName
	uid     types.UID
	invalid bool // never admitted
	// refusedAt is the step since which the manager must create nothing for it; 0 is never.
	refusedAt int
	gone      bool
	cutOff    bool // by the pause, or a lost right, at any time
	jobs      map[types.UID]int
	// removed counts Jobs that were not deleted by the manager.
	removed map[types.UID]int
	created map[creator]int
	last    *sondev1.CaptureStatus
	patches int
}

// creator is a manager that creates Jobs for a Pod.
type creator struct {
	pod types.UID
	m   *replica
}

func newSchedule(t *testing.T, seed uint64) *schedule {
	t.Helper()
	s := &schedule{
		seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), clock: clocktesting.NewFakeClock(dawn),
		nodes: map[string]nodeState{"node-a": nodeReady, "node-b": nodeReady}, denied: map[string]bool{}, writes: map[string]int{},
		boundAt: map[types.UID]time.Time{},
	}
	s.Record = memapi.Record{Clock: s.clock, Start: dawn}
	s.api = memapi.NewServer(testScheme(t), s.clock)
	return s
}

// begin creates the cluster and a workload with this number of Pods.
func (s *schedule) begin(pods int) {
	must := func(o client.Object) {
		if err := s.api.Create(o); err != nil {
			s.Fail("create the cluster: %v", err)
		}
	}
	for _, name := range []string{operatorNamespace, "shop"} {
		must(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, name := range []string{"node-a", "node-b"} {
		must(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	}
	s.makeWorkload()
	for range pods {
		s.makePodOfWorkload()
	}
}

func (s *schedule) makeWorkload() {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	if s.api.Create(d) != nil {
		return
	}
	_ = s.api.Create(replicaSetOf(d.UID))
}

func replicaSetOf(deployment types.UID) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-rs", OwnerReferences: owned("Deployment", "web", deployment)}}
}

func (s *schedule) makePodOfWorkload() string {
	s.pods++
	name := fmt.Sprintf("web-%d", s.pods)
	s.makePodNamed(name)
	return name
}

func (s *schedule) makePodNamed(name string) {
	rs, ok := s.api.Objects[memapi.KeyFor("ReplicaSet", "shop", "web-rs")]
	if !ok {
		return
	}
	pod := webPod(name, func(p *corev1.Pod) {
		p.OwnerReferences = owned("ReplicaSet", "web-rs", rs.GetUID())
		p.Spec.NodeName = []string{"node-a", "node-b"}[s.rand.IntN(2)]
		p.Status.PodIP = "10.2.0.1"
	})
	// Not with a mutant: the seeds that find its bug must go on as before.
	own := rand.New(rand.NewPCG(s.seed, 300+uint64(s.pods)))
	late := s.plan == nil && s.mutate == nil && !s.calm && own.IntN(5) == 0
	node := pod.Spec.NodeName
	if late {
		pod.Spec.NodeName, pod.Status.Phase = "", corev1.PodPending
	}
	if s.api.Create(pod) == nil && late {
		s.Trace("%s waits for a node", name)
		s.binding = append(s.binding, binding{s.api.KeyOf(pod), pod.UID, node, s.clock.Now().Add(time.Duration(own.IntN(60)) * time.Second)})
	}
}

// binding is a Pod that gets a node at a time.
type binding struct {
	key  memapi.Key
	uid  types.UID
	node string
	at   time.Time
}

// bind plays the scheduler. It reports whether a Pod has got its node.
func (s *schedule) bind() bool {
	before := len(s.binding)
	s.binding = slices.DeleteFunc(s.binding, func(b binding) bool {
		pod, ok := s.api.Objects[b.key].(*corev1.Pod)
		switch {
		case !ok, pod.UID != b.uid:
			return true
		case s.clock.Now().Before(b.at):
			return false
		}
		s.boundAt[b.uid] = s.clock.Now()
		s.Trace("%s gets its node", b.key)
		memapi.Edit(s.api, b.key, func(p *corev1.Pod) {
			if p.Spec.NodeName = b.node; p.Status.Phase == corev1.PodPending {
				p.Status.Phase = corev1.PodRunning
			}
		})
		return true
	})
	return len(s.binding) < before
}

func (s *schedule) captureKeys() []types.NamespacedName {
	var keys []types.NamespacedName
	for _, c := range s.captures {
		if !slices.Contains(keys, c.key) {
			keys = append(keys, c.key)
		}
	}
	return keys
}

// truth returns the truth of the capture with a UID.
func (s *schedule) truth(uid types.UID) *captureTruth {
	for _, c := range s.captures {
		if c.uid == uid {
			return c
		}
	}
	return nil
}

// live returns the API server's capture; nil if it is gone.
func (s *schedule) live(c *captureTruth) *sondev1.PacketCapture {
	pc, ok := s.api.Objects[memapi.KeyFor("PacketCapture", c.key.Namespace, c.key.Name)].(*sondev1.PacketCapture)
	if !ok || pc.UID != c.uid {
		return nil
	}
	return pc
}

// entryOf returns the entry of an agent in the API server's status.
func (s *schedule) entryOf(a *agent) *sondev1.PodResult {
	c := s.truth(a.capture)
	if c == nil {
		return nil
	}
	pc := s.live(c)
	if pc == nil {
		return nil
	}
	for i := range pc.Status.Pods {
		if pc.Status.Pods[i].UID == string(a.target) {
			return &pc.Status.Pods[i]
		}
	}
	return nil
}

// random runs a whole schedule: random steps, then a time without faults.
func (s *schedule) random() {
	s.faults = []int{0, 20, 60, 150}[s.rand.IntN(4)]
	s.pauses = []int{0, 10, 40}[s.rand.IntN(3)]
	s.disturbances = s.rand.IntN(10)
	s.ceilings = s.ceilingsOf()
	s.annotates = rand.New(rand.NewPCG(s.seed, 3)).IntN(4) == 0
	s.Trace("faults %d/1000, pauses %d/1000, %d things happen, ceilings %+v", s.faults, s.pauses, s.disturbances, s.ceilings)
	s.begin(1 + s.rand.IntN(4))
	s.request("pc")
	s.leader = s.newReplica(0)
	for range 150 + s.rand.IntN(250) {
		s.step()
		if s.Broken != "" {
			return
		}
	}
	s.rest()
}

// step lets a random actor act.
func (s *schedule) step() {
	s.Steps++
	s.endLeaving()
	s.bind()
	if s.leader != nil {
		s.leader.queue.AddDue()
	}
	switch n := s.rand.IntN(100); {
	case n < 25:
		s.stepInformer()
	case n < 50:
		s.stepReconcile()
	case n < 80:
		s.stepAgent()
	case n < 84:
		s.stepDisturbance()
	case n < 98:
		s.stepClock()
	default:
		s.stepLeader()
	}
}

func (s *schedule) stepInformer() {
	if s.leader == nil {
		return
	}
	i := s.leader.view.Informers[s.rand.IntN(len(s.leader.view.Informers))]
	for range 1 + s.rand.IntN(4) {
		s.leader.applyNext(i, s.faults > 0 && s.rand.IntN(20) == 0, s.faults > 0 && s.rand.IntN(20) == 0)
	}
}

func (s *schedule) stepReconcile() {
	m := s.leader
	if m == nil {
		return
	}
	if !m.sweeping && !s.clock.Now().Before(m.sweepAt) && s.rand.IntN(3) == 0 {
		m.sweep()
		return
	}
	ready := m.queue.Ready()
	if len(ready) > 0 {
		m.reconcile(ready[s.rand.IntN(len(ready))])
	}
}

func (s *schedule) stepAgent() {
	if len(s.agents) > 0 {
		s.play(s.agents[s.rand.IntN(len(s.agents))])
	}
}

// stepClock advances the clock by up to two seconds, or to the next event.
func (s *schedule) stepClock() {
	d := time.Duration(s.rand.IntN(2000)) * time.Millisecond
	if next := s.nextTime(); s.Depth == 0 && !next.IsZero() && s.rand.IntN(3) == 0 {
		d = min(max(next.Sub(s.clock.Now()), 0), time.Minute)
	}
	s.clock.Step(d)
	if s.leader != nil {
		s.leader.catchUp(s.clock.Now().Add(-mostLag))
	}
}

// nextTime is when time alone causes the next event.
func (s *schedule) nextTime() time.Time {
	var next time.Time
	if s.leader != nil {
		next = s.leader.nextTimer()
	}
	for _, a := range s.agents {
		next = earlier(next, s.nextEvent(a))
	}
	for _, l := range s.leaving {
		next = earlier(next, l.deadline)
	}
	return next
}

// stepLeader starts a manager if there is none. Otherwise it crashes the leader or replaces it.
func (s *schedule) stepLeader() {
	switch {
	case s.leader == nil:
		s.leader = s.newReplica(s.rand.IntN(6))
	case s.faults == 0:
	case s.rand.IntN(2) == 0:
		s.Trace("%s crashes", s.leader)
		s.leader.requests.Dead = true
		s.leader, s.leaderUntil = nil, s.clock.Now()
	default: // the old leader finishes its current pass
		s.leader = s.newReplica(s.rand.IntN(6))
	}
}

// rest stops all faults, and checks that the cluster comes to rest.
func (s *schedule) rest() {
	s.Trace("faults stop")
	s.calm = true
	if s.leader == nil {
		s.leader = s.newReplica(0)
	}
	end := s.clock.Now().Add(3 * time.Hour)
	for s.clock.Now().Before(end) {
		s.settle()
		s.checkSurplus()
		if s.Broken != "" {
			return
		}
		next := s.nextTime()
		if next.IsZero() {
			break
		}
		s.clock.SetTime(later(next, s.clock.Now().Add(time.Millisecond)))
	}
	s.checkEnd()
}

// settle lets all actors act until none has anything to do at this time.
func (s *schedule) settle() {
	for range 2000 {
		s.Steps++
		m := s.leader
		m.catchUp(s.clock.Now())
		m.queue.AddDue()
		actions := s.endLeaving()
		actions = s.bind() || actions
		if !s.clock.Now().Before(m.sweepAt) {
			m.sweep()
			actions = true
		}
		for len(m.queue.Keys) > 0 && !m.requests.Dead {
			m.reconcile(m.queue.Keys[0])
			actions = true
		}
		if m.requests.Dead { // as planned
			s.leader = s.newReplica(0)
			actions = true
		}
		for _, a := range s.agents {
			actions = s.play(a) || actions
		}
		if !actions {
			return
		}
	}
	s.Fail("the clock stands still, and the actors do not come to rest")
}
