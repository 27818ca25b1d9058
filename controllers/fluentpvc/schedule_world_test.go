package fluentpvc

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/test/memapi"
)

const (
	operatorNamespace = "sonde-system"
	// mostLag is the largest lag of a cache.
	mostLag = 10 * time.Second
	// calmFor is longer than a binding whose data is lost is kept.
	calmFor = 30 * time.Hour
)

var (
	pauseKey = memapi.KeyFor("ConfigMap", operatorNamespace, pause.ConfigMapName)
	shopKey  = memapi.KeyFor("Namespace", "", "shop")
)

// schedule is one run of the controller in a cluster where everything happens at the worst moment. It is repeatable: its
// randomness comes from the seed, and nothing runs concurrently.
type schedule struct {
	memapi.Record

	rand  *rand.Rand
	clock *clocktesting.FakeClock
	api   *memapi.Server

	leader   *replica // nil while there is none
	replicas int
	// only is the name of the only disturbance; empty means all.
	only string
	// mutate breaks a manager on purpose.
	mutate func(*replica)

	actors map[types.UID]*actor
	order  []types.UID
	truth  truth
	claims int

	// forbidden, full and budget refuse writes of the manager: a right is missing, a quota is exceeded, a PodDisruptionBudget keeps
	// Pods.
	forbidden, full, budget bool
	// immediate storage classes bind a volume before a Pod uses the claim.
	immediate bool

	// faults and pauses are the chances in 1000 of each call; disturbances is the number that may still happen.
	faults, pauses, disturbances int
	// calm ends all faults, pauses and disturbances.
	calm   bool
	writes int
}

func newSchedule(t *testing.T, seed uint64) *schedule {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, sondev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &schedule{rand: rand.New(rand.NewPCG(seed, 1)), clock: clocktesting.NewFakeClock(noon), actors: map[types.UID]*actor{}, truth: newTruth()}
	s.Record = memapi.Record{Clock: s.clock, Start: noon}
	s.api = memapi.NewServer(scheme, s.clock)
	s.api.Admit = s.admit
	return s
}

// random runs a whole schedule: random steps, then a time without faults.
func (s *schedule) random() {
	s.faults = []int{0, 20, 60, 150}[s.rand.IntN(4)]
	s.pauses = []int{0, 10, 40}[s.rand.IntN(3)]
	s.disturbances = s.rand.IntN(12)
	s.immediate = s.rand.IntN(3) == 0
	s.Trace("faults %d/1000, pauses %d/1000, %d things happen", s.faults, s.pauses, s.disturbances)
	for _, name := range []string{operatorNamespace, "shop"} {
		s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	s.create(s.definition())
	s.leader = s.newReplica(0)
	for range 1 + s.rand.IntN(3) {
		s.makePod()
	}
	for range 150 + s.rand.IntN(250) {
		s.step()
		if s.Broken != "" {
			return
		}
	}
	s.rest()
}

// definition returns a FluentPVC with random times.
func (s *schedule) definition() *sondev1.FluentPVC {
	f := fluentPVC()
	f.UID = ""
	f.Spec.Retention = []string{"", "0s", "2m"}[s.rand.IntN(3)]
	f.Spec.Finalizer = sondev1.FinalizerPolicy{MaxAttempts: int32(s.rand.IntN(4)), Backoff: []string{"", "1s", "5m"}[s.rand.IntN(3)], FailedRetention: []string{"", "1m", "1h"}[s.rand.IntN(3)]}
	if s.rand.IntN(3) == 0 {
		f.Spec.DeletePodIfSidecarContainerTerminationDetected = new(false)
	}
	if s.rand.IntN(8) == 0 {
		f.Spec.MaxBindings, s.truth.bounded = 2, true
	}
	return f
}

// create stores an object of another actor, and reports whether the API server took it.
func (s *schedule) create(o client.Object) bool {
	if err := s.api.Create(o); err != nil {
		return false
	}
	s.Trace("%s is created", s.api.KeyOf(o))
	s.follow(o)
	return true
}

// within returns a random time from now on.
func (s *schedule) within(most time.Duration) time.Time {
	return s.clock.Now().Add(time.Duration(s.rand.Int64N(int64(most))))
}

// step lets a random actor act.
func (s *schedule) step() {
	s.Steps++
	if s.leader != nil {
		s.leader.queue.AddDue()
	}
	switch n := s.rand.IntN(100); {
	case n < 30:
		s.stepInformer()
	case n < 50:
		s.stepReconcile()
	case n < 78:
		if len(s.order) > 0 {
			s.play(s.actors[s.order[s.rand.IntN(len(s.order))]])
		}
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
	if s.faults > 0 && s.rand.IntN(20) == 0 {
		s.leader.relist(i)
		return
	}
	for range 1 + s.rand.IntN(4) {
		s.leader.applyNext(i, s.faults > 0 && s.rand.IntN(20) == 0)
	}
}

func (s *schedule) stepReconcile() {
	if s.leader == nil {
		return
	}
	if ready := s.leader.queue.Ready(); len(ready) > 0 {
		s.leader.reconcile(ready[s.rand.IntN(len(ready))])
	}
}

// stepClock advances the clock by up to two seconds, or to the next event.
func (s *schedule) stepClock() {
	d := time.Duration(s.rand.IntN(2000)) * time.Millisecond
	if next := s.nextTime(); s.Depth == 0 && !next.IsZero() && s.rand.IntN(3) == 0 {
		d = min(max(next.Sub(s.clock.Now()), 0), 10*time.Minute)
	}
	s.clock.Step(d)
	if s.leader != nil {
		s.leader.catchUp(s.clock.Now().Add(-mostLag))
	}
}

// nextTime is when time alone causes the next event; zero if it does not.
func (s *schedule) nextTime() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if s.leader != nil {
		sooner(s.leader.queue.NextTimer())
	}
	for _, uid := range s.order {
		if a := s.actors[uid]; a.next.After(s.clock.Now()) {
			sooner(a.next)
		}
	}
	return next
}

// stepLeader starts a manager if there is none. Otherwise it crashes the leader or replaces it.
func (s *schedule) stepLeader() {
	switch {
	case s.leader == nil:
		if s.rand.IntN(2) == 0 { // the others may act for a while
			s.leader = s.newReplica(s.rand.IntN(6))
		}
	case s.faults == 0:
	case s.rand.IntN(2) == 0:
		s.Trace("%s crashes", s.leader)
		s.crash(s.leader)
	default: // the old leader finishes its current pass
		s.leader = s.newReplica(s.rand.IntN(6))
	}
}

func (s *schedule) crash(m *replica) {
	m.requests.Dead = true
	if s.leader == m {
		s.leader = nil
	}
}

// chooseFault decides what happens to a request.
func (s *schedule) chooseFault(m *replica, verb string, write bool) (f memapi.Fault) {
	if s.calm {
		return f
	}
	if s.rand.IntN(1000) < s.faults {
		f = memapi.RandomFault(s.rand, write, func() { s.crash(m) }, func() {
			if s.leader == m && s.Depth < 2 {
				s.leader = s.newReplica(s.rand.IntN(6))
			}
			s.Meanwhile(s.rand, m, s.step)
		})
	}
	if verb == "delete" && apierrors.IsConflict(f.Err) {
		f.Err = nil // the API server repeats a deletion until only the precondition can fail
	}
	if f.Before == nil && s.rand.IntN(1000) < s.pauses {
		f.Before = func() { s.Meanwhile(s.rand, m, s.step) }
	}
	return f
}

// rest stops all faults, and checks that the cluster comes to rest.
func (s *schedule) rest() {
	s.Trace("faults stop")
	s.calm = true
	_ = s.api.Delete(pauseKey, nil)
	if s.leader == nil {
		s.leader = s.newReplica(0)
	}
	for end := s.clock.Now().Add(calmFor); ; {
		s.settle()
		next := s.nextTime()
		if s.Broken != "" || next.IsZero() || next.After(end) {
			break
		}
		s.clock.SetTime(later(next, s.clock.Now().Add(time.Millisecond)))
	}
	if s.Broken == "" {
		s.checkEnd()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// settle lets all actors act until none has anything to do at this time.
func (s *schedule) settle() {
	for range 2000 {
		s.Steps++
		m, before := s.leader, len(s.api.Log)
		m.catchUp(s.clock.Now())
		m.queue.AddDue()
		passes := len(m.queue.Keys)
		for len(m.queue.Keys) > 0 {
			m.reconcile(m.queue.Keys[0])
		}
		for _, uid := range slices.Clone(s.order) {
			if a := s.actors[uid]; a != nil {
				s.play(a)
			}
		}
		if passes == 0 && len(s.api.Log) == before {
			return
		}
	}
	s.Fail("the clock stands still, and the actors do not come to rest")
}

// claimName returns a new name of the form that the webhook makes.
func (s *schedule) claimName() string {
	s.claims++
	number := strings.Map(func(digit rune) rune { return digit - '0' + 'a' }, fmt.Sprintf("%05d", s.claims))
	return "logs-01234567-claim" + number
}
