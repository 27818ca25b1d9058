package intercept

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/memapi"
)

var limits = ceiling.Limits{PodsPerCapture: 200, ProbesPerNode: 40}

// crowd returns ten requests on 200 Pods each, 20 on a node, which together are as many as there may be carriers.
func crowd(namespace string) []*request {
	var all []*request
	for i := range 10 {
		q := intercepting(fmt.Sprint(namespace, i))
		q.Namespace = namespace
		for j := range 200 {
			q.pods = append(q.pods, podNamed(fmt.Sprintf("p-%d-%d", i, j), func(p *corev1.Pod) {
				p.Namespace, p.UID, p.Spec.NodeName = namespace, types.UID(namespace+"-"+p.Name), fmt.Sprint("node-", i*10+j/20)
			}))
		}
		all = append(all, q)
	}
	return all
}

// late is the request of another namespace, and younger than the others.
func late() *request {
	q := intercepting("late", "web-1")
	q.CreationTimestamp = metav1.NewTime(noon.Add(-time.Second))
	return q
}

// nodes are read, and exist.
func nodes(exist bool) map[string]nodeReading {
	all := map[string]nodeReading{"node-a": {exists: true, at: noon}}
	for i := range 100 {
		all[fmt.Sprint("node-", i)] = nodeReading{exist, noon}
	}
	return all
}

func created(p *plan) map[string]int {
	by := map[string]int{}
	for _, pod := range p.create {
		by[pod.Namespace]++
	}
	return by
}

// TestOneNamespaceLeavesCarriersToOthers: a namespace has half of all carriers, and a pass creates some for each namespace.
func TestOneNamespaceLeavesCarriersToOthers(t *testing.T) {
	o := &observation{requests: append(crowd("crowded"), late()), stowaway: up, nodes: nodes(true)}
	p := planFor(o, limits, noon)
	if len(p.pods) != tunnel.MaxCarriers/2+1 {
		t.Errorf("%d Pods are chosen, want half of %d and one more", len(p.pods), tunnel.MaxCarriers)
	}
	if got := created(p); len(p.create) != maxChanges || got["shop"] != 1 {
		t.Errorf("a pass creates %v, want %d in all, and one of shop", got, maxChanges)
	}
	if p.again != nextBatch {
		t.Errorf("the next pass is due after %v, want %v", p.again, nextBatch)
	}
	want := "waiting: 1000 Pods of namespace crowded are intercepted, the most for one namespace"
	if got := p.waiting["uid-crowded9"]["crowded-p-9-0"]; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestMadeUpNodesTakeNoPlace: Pods on nodes that do not exist, or were never read, come after those on nodes that do.
func TestMadeUpNodesTakeNoPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes map[string]nodeReading
		read  int // nodes before the creations
	}{
		"missing":    {nodes: nodes(false)},
		"never read": {nodes: nodeA, read: 1}, // at least
	} {
		t.Run(name, func(t *testing.T) {
			o := &observation{requests: append(slices.Concat(crowd("crowded"), crowd("other")), late()), stowaway: up, nodes: tc.nodes}
			p := planFor(o, limits, noon)
			if got := created(p); len(got) != 1 || got["shop"] != 1 {
				t.Errorf("a pass creates %v, want one of shop", got)
			}
			if len(p.nodes) < tc.read || len(p.nodes) > maxChanges {
				t.Errorf("a pass reads %d nodes, want %d to %d", len(p.nodes), tc.read, maxChanges)
			}
		})
	}
}

// TestNodesAreReadAgain: a reading of a minute ago counts for no new carrier, and few of the missing nodes are read in a pass.
func TestNodesAreReadAgain(t *testing.T) {
	later := noon.Add(nodeAge)
	o := &observation{requests: []*request{late()}, stowaway: up, nodes: nodes(false)}
	o.nodes["node-7"] = nodeReading{at: noon.Add(-time.Second)}
	p := planFor(o, limits, later)
	if len(p.create) != 0 || len(p.nodes) != maxRereads+1 || p.nodes[0] != "node-7" || !slices.Contains(p.nodes, "node-a") {
		t.Errorf("creates %d, reads %v", len(p.create), p.nodes)
	}
}

// TestBatch: at most maxChanges of many, in turns of the namespaces, and all of them over time.
func TestBatch(t *testing.T) {
	var all []string
	for i := range 300 {
		all = append(all, fmt.Sprintf("crowded/%d", i))
	}
	all = append(all, "shop/a", "shop/b", "bank/a")
	namespace := func(s string) string { before, _, _ := strings.Cut(s, "/"); return before }
	seen := map[string]bool{}
	for i := range 300 {
		got := batch(all, namespace, noon.Add(time.Duration(i)*nextBatch))
		distinct := map[string]bool{}
		for _, one := range got {
			seen[one], distinct[one] = true, true
		}
		if len(distinct) != maxChanges || len(got) != maxChanges || !distinct["shop/a"] || !distinct["shop/b"] || !distinct["bank/a"] {
			t.Fatalf("time %d: %d carriers are chosen, %d of them different", i, len(got), len(distinct))
		}
	}
	if len(seen) != len(all) {
		t.Errorf("%d of %d had a turn", len(seen), len(all))
	}
	if got := batch(all[:maxChanges], namespace, noon); !slices.Equal(got, all[:maxChanges]) {
		t.Errorf("few are changed: %v", got)
	}
}

// TestRemovalsAreBounded: the end of many carriers takes several passes, also without a request that would cause them.
func TestRemovalsAreBounded(t *testing.T) {
	o := &observation{carriers: map[types.UID]*carrier{}, secrets: map[string]types.UID{}, stowaway: up}
	for i := range 120 {
		name := fmt.Sprint("web-", i)
		o.carriers[types.UID("uid-"+name)] = carrierOf(name, "0", time.Minute, "")
		o.secrets["of-"+name] = types.UID("uid-" + name)
	}
	p := planFor(o, limits, noon)
	if len(p.remove) != maxChanges || len(p.removeSecrets) != maxChanges || p.again != nextBatch || !p.removeStowaway {
		t.Errorf("removes %d carriers and %d Secrets, again after %v, Stowaway is removed: %t", len(p.remove), len(p.removeSecrets), p.again, p.removeStowaway)
	}
}

// settled returns a schedule without faults, in which two Pods of a request have carriers.
func settled(t *testing.T) *schedule {
	t.Helper()
	s := newSchedule(t, 1)
	s.calm = true
	for _, name := range []string{sondeSystem, "shop"} {
		s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	s.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	s.create(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	s.podOn("n1")
	s.podOn("n1")
	s.requestFor("8h")
	s.leader = s.newReplica(0)
	s.settle()
	if n := len(memapi.Of[*batchv1.Job](s.api.Objects, "Job")); n != 2 {
		t.Fatalf("%d carriers, want 2", n)
	}
	return s
}

// settle makes some passes.
func (s *schedule) settle() {
	for range 10 {
		s.play()
		s.catchUp(s.clock.Now().Add(time.Second))
		s.reconcile(s.leader)
		s.clock.Step(time.Second)
	}
}

// TestNoCarrierOnANodeThatDoesNotExist: the status says why, and a node that appears is found.
func TestNoCarrierOnANodeThatDoesNotExist(t *testing.T) {
	s := settled(t)
	s.podOn("made-up")
	s.settle()
	jobs := func() int { return len(memapi.Of[*batchv1.Job](s.api.Objects, "Job")) }
	q := memapi.Of[*sondev1.InterceptRequest](s.api.Objects, "InterceptRequest")[0]
	want := "waiting: node made-up does not exist, so no kubelet runs the Pod"
	if n := len(q.Status.Pods); jobs() != 2 || n != 3 || q.Status.Pods[2].Message != want {
		t.Errorf("%d carriers, and the status is %+v, want 2 and %q", jobs(), q.Status.Pods, want)
	}
	s.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "made-up"}})
	s.clock.Step(nodeAge)
	s.settle()
	if jobs() != 3 {
		t.Errorf("%d carriers, want 3", jobs())
	}
	for _, p := range memapi.Of[*corev1.Pod](s.api.Objects, "Pod") {
		if p.Namespace == "shop" {
			s.api.Remove(s.api.KeyOf(p))
		}
	}
	s.settle()
	if got := s.leader.r.memory.nodes; len(got) != 0 {
		t.Errorf("the nodes of Pods that have gone are kept: %v", got)
	}
}

// pushes is a Stowaway that calls when it gets a State.
type pushes struct {
	*simulated
	pushed func(tunnel.State)
}

func (p pushes) Push(ctx context.Context, o *stowawayObjects, state tunnel.State) error {
	p.pushed(state)
	return p.simulated.Push(ctx, o, state)
}

// TestRoutesEndBeforeCarriers: what ended has no route before its carriers are removed, which may take long.
func TestRoutesEndBeforeCarriers(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*schedule)
		want []string
	}{
		"a Pod":            {func(s *schedule) { s.remove("Pod", "shop") }, []string{"a State with 1 carriers", "delete Job", "delete Secret"}},
		"the last request": {func(s *schedule) { s.remove("InterceptRequest", "") }, []string{"delete Deployment", "delete Service", "delete Secret", "delete Job"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := settled(t)
			var acts []string
			s.leader.r.Stowaway = pushes{s.end, func(state tunnel.State) {
				acts = append(acts, fmt.Sprintf("a State with %d carriers", len(state.Carriers)))
			}}
			s.leader.r.Client = memapi.Mutant{Client: s.leader.r.Client, OnDelete: func(ctx context.Context, c client.Client, o client.Object) error {
				kinds, _, err := s.api.Scheme.ObjectKinds(o)
				if err != nil {
					return err
				}
				acts = append(acts, "delete "+kinds[0].Kind)
				return c.Delete(ctx, o)
			}}
			tc.end(s)
			s.catchUp(s.clock.Now().Add(time.Second))
			s.reconcile(s.leader)
			if len(acts) < len(tc.want) || !slices.Equal(acts[:len(tc.want)], tc.want) {
				t.Errorf("a pass does %q, want first %q", acts, tc.want)
			}
		})
	}
}
