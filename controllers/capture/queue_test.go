package capture

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// other is a capture of the namespace that was created this long after the tested one.
func other(name string, after time.Duration, change ...func(*sondev1.PacketCapture)) *sondev1.PacketCapture {
	return newCapture(append([]func(*sondev1.PacketCapture){func(pc *sondev1.PacketCapture) {
		pc.Name, pc.UID, pc.CreationTimestamp = name, types.UID(name), metav1.NewTime(dawn.Add(after))
		pc.Spec.JobID, pc.Spec.TargetDeployment = "othr", "else"
	}}, change...)...)
}

func begun(pc *sondev1.PacketCapture) {
	start := metav1.NewTime(dawn)
	pc.Status.StartTime, pc.Status.Phase = &start, sondev1.PhaseCapturing
}

func (w *world) entries() []string {
	var all []string
	for _, e := range w.capture().Status.Pods {
		all = append(all, fmt.Sprintf("%s %s %s", e.Name, e.Phase, e.Reason))
	}
	return all
}

// TestQueueOfNamespace checks the order of the queue: running captures first, then by age, then by UID.
func TestQueueOfNamespace(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		others []client.Object
		limit  int
		queued bool
	}{
		"no ceiling":            {others: []client.Object{other("a", 0, begun), other("b", 0, begun)}},
		"room":                  {limit: 2, others: []client.Object{other("a", -time.Minute)}},
		"an older one":          {limit: 1, others: []client.Object{other("z", -time.Minute)}, queued: true},
		"a younger one":         {limit: 1, others: []client.Object{other("a", time.Minute)}},
		"a younger one, begun":  {limit: 1, others: []client.Object{other("a", time.Minute, begun)}, queued: true},
		"same age, lesser UID":  {limit: 1, others: []client.Object{other("a", 0)}, queued: true},
		"same age, greater UID": {limit: 1, others: []client.Object{other("z", 0)}},
		"a completed one": {limit: 1, others: []client.Object{other("a", -time.Minute, func(pc *sondev1.PacketCapture) {
			pc.Status.Phase = sondev1.PhaseCompleted
		})}},
		"another namespace's": {limit: 1, others: []client.Object{other("a", -time.Minute, func(pc *sondev1.PacketCapture) { pc.Namespace = "private" })}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), append(deployment("web-1"), tc.others...)...)
			w.r.Ceilings = ceiling.Limits{CapturesPerNamespace: tc.limit}
			res := w.settle()
			if (len(w.jobs()) == 0) != tc.queued {
				t.Fatalf("jobs %v, want queued %v", w.jobNames(), tc.queued)
			}
			if !tc.queued {
				return
			}
			if got := w.condition(sondev1.ConditionCapturing); got != "False Queued" {
				t.Errorf("Capturing is %q", got)
			}
			message := w.capture().Status.Pods[0].Message
			for _, want := range []string{"1 may run at the same time", "cluster admin", "--max-captures-per-namespace"} {
				if !strings.Contains(message, want) {
					t.Errorf("message %q does not say %q", message, want)
				}
			}
			if res.RequeueAfter != queueDelay {
				t.Errorf("next pass after %s", res.RequeueAfter)
			}
		})
	}
}

// TestQueueDrains checks that the time in the queue does not count as waiting for a target.
func TestQueueDrains(t *testing.T) {
	t.Parallel()
	first := other("a", -time.Minute, begun)
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.FollowPods = new(false) }), append(deployment("web-1"), first)...)
	w.r.Ceilings = ceiling.Limits{CapturesPerNamespace: 1}
	w.settle()
	w.clock.Step(2 * targetTimeout)
	if res := w.settle(); len(w.jobs()) > 0 || w.capture().Status.Phase != sondev1.PhasePending || res.RequeueAfter != queueDelay {
		t.Fatalf("jobs %v, status %+v, next pass after %s", w.jobNames(), w.capture().Status, res.RequeueAfter)
	}
	w.add(webPod("web-2", w.now)) // while the capture waits
	w.settle()
	w.remove(first)
	w.settle()
	if diff := cmp.Diff([]string{"web-1-qwer", "web-2-qwer"}, w.jobNames()); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if end := w.capture().Status.EndTime; end != nil {
		t.Errorf("the end is fixed at %v, before a probe is attached", end)
	}
	w.clock.Step(time.Minute) // a slow start
	w.attachNew()
	w.settle()
	if s := w.capture().Status; s.Phase != sondev1.PhaseCapturing || s.EndTime == nil || !s.EndTime.After(w.clock.Now()) {
		t.Errorf("phase %s, end %v, now %v", s.Phase, s.EndTime, w.clock.Now())
	}
}

// TestErrorAfterTheQueue checks that a capture that waited for long is not lost if its first Job cannot be created at once.
func TestErrorAfterTheQueue(t *testing.T) {
	t.Parallel()
	first := other("a", -time.Minute, begun)
	w := newWorld(t, newCapture(), append(deployment("web-1"), first)...)
	w.r.Ceilings = ceiling.Limits{CapturesPerNamespace: 1}
	w.settle()
	w.clock.Step(2 * targetTimeout)
	w.remove(first)
	boom := errors.New("no connection")
	w.createErr = func(client.Object) error { return boom }
	for range 2 {
		if _, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: w.key}); !errors.Is(err, boom) {
			t.Fatalf("Reconcile error = %v, want %v", err, boom)
		}
	}
	w.createErr = nil
	w.settle()
	if s := w.capture().Status; s.Phase.Final() || len(w.jobs()) != 1 {
		t.Errorf("phase %s, %d jobs, entries %v", s.Phase, len(w.jobs()), entries(s))
	}
}

// TestQueueStopped checks that a queued capture can be stopped, and fails.
func TestQueueStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), append(deployment("web-1"), other("a", -time.Minute))...)
	w.r.Ceilings = ceiling.Limits{CapturesPerNamespace: 1}
	w.settle()
	pc := w.capture()
	pc.Spec.Stop = true
	w.update(pc)
	w.settle()
	if got := w.capture().Status.Phase; got != sondev1.PhaseFailed || len(w.jobs()) > 0 {
		t.Errorf("phase %s, jobs %v", got, w.jobNames())
	}
}

// TestProbesOfUnlistedPodsAreStopped checks that a capture leaves no Job of a Pod that its status has no room to list, if the probe has not
// begun: it would capture after the end.
func TestProbesOfUnlistedPodsAreStopped(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range sondev1.MaxPodEntries + 10 {
		names = append(names, fmt.Sprintf("web-%03d", i))
	}
	w := newWorld(t, newCapture(), deployment(names...)...)
	w.r.Ceilings = ceiling.Limits{PodsPerCapture: len(names)}
	w.settle()
	if n := len(w.jobs()); n != len(names) {
		t.Fatalf("%d Jobs, want one for each Pod", n)
	}
	pc := w.capture()
	pc.Spec.Stop = true
	w.update(pc)
	w.settle()
	if s := w.capture().Status; s.Phase != sondev1.PhaseFailed || s.PodsOmitted != 10 || len(w.jobs()) > 0 {
		t.Errorf("phase %s, %d omitted, %d Jobs left", s.Phase, s.PodsOmitted, len(w.jobs()))
	}
}

// TestQueueOfPods checks that Pods above a ceiling wait until others have ended.
func TestQueueOfPods(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limits ceiling.Limits
		reason string
	}{
		"of the capture": {limits: ceiling.Limits{PodsPerCapture: 2}, reason: sondev1.ReasonCeilingPods},
		"of the node":    {limits: ceiling.Limits{ProbesPerNode: 4}, reason: sondev1.ReasonCeilingNode},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), deployment("web-1", "web-2", "web-3", "web-4")...)
			w.r.Ceilings = tc.limits
			w.settle()
			want := []string{"web-3 Pending " + tc.reason, "web-4 Pending " + tc.reason, "web-1 Pending Pending", "web-2 Pending Pending"}
			if diff := cmp.Diff(want, w.entries()); diff != "" {
				t.Fatalf("entries (-want +got):\n%s", diff)
			}
			if got := w.condition(sondev1.ConditionCapturing); got != "False "+tc.reason {
				t.Errorf("Capturing is %q", got)
			}
			// Both probes end at their packet limit; kept results do not count.
			w.agents(w.attach)
			w.clock.Step(5 * time.Second)
			w.agents(w.end(done(sondev1.ReasonPacketLimit)))
			w.settle()
			if diff := cmp.Diff([]string{"web-1-qwer", "web-2-qwer", "web-3-qwer", "web-4-qwer"}, w.jobNames()); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestQueueOfUnlistedPods checks that a Pod whose probe has ended makes room for another one also if the status does not list it.
func TestQueueOfUnlistedPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(begun, func(pc *sondev1.PacketCapture) {
		for i := range sondev1.MaxPodEntries { // listed before all others
			name := fmt.Sprintf("over-%03d", i)
			pc.Status.Pods = append(pc.Status.Pods, sondev1.PodResult{
				UID: "uid-" + name, Name: name, Node: "node-a", Job: name + "-qwer", Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled,
			})
		}
	}), deployment("web-1", "web-2")...)
	w.r.Ceilings = ceiling.Limits{PodsPerCapture: 2}
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.add(webPod("web-3", w.now))
	w.settle()
	want := []string{"web-1-qwer", "web-2-qwer"}
	if diff := cmp.Diff(want, w.jobNames()); diff != "" || w.capture().Status.PodsOmitted != 3 {
		t.Fatalf("jobs of a full capture (-want +got):\n%s, %d Pods are not listed", diff, w.capture().Status.PodsOmitted)
	}
	w.clock.Step(5 * time.Second)
	w.agents(w.end(done(sondev1.ReasonPacketLimit)))
	w.settle()
	w.clock.Step(5 * time.Second)
	w.add(webPod("web-4", w.now), webPod("web-5", w.now))
	w.settle()
	want = append(want, "web-3-qwer", "web-4-qwer")
	if diff := cmp.Diff(want, w.jobNames()); diff != "" {
		t.Errorf("jobs after two probes have ended (-want +got):\n%s", diff)
	}
}

// TestKeptResultsTakePlaces checks that a kept result takes a place on its node until it is deleted, that the Pod that waits for it
// says how to get one, and that the namespaces share the places.
func TestKeptResultsTakePlaces(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limit   int
		waiting bool
	}{
		"no ceiling":        {limit: 0},
		"a place is free":   {limit: 4},
		"half of them kept": {limit: 2, waiting: true},
	} {
		t.Run(name, func(t *testing.T) {
			first := other("a", -time.Minute, func(pc *sondev1.PacketCapture) { pc.Spec.TargetDeployment = "web" })
			w := newWorld(t, first, append(deployment("web-1"), newCapture())...)
			w.r.Ceilings = ceiling.Limits{ResultsPerNode: tc.limit}
			w.settle()
			w.agents(w.attach)
			w.clock.Step(31 * time.Second)
			w.agents(w.end(done(sondev1.ReasonDuration)))
			w.settle()
			if got := w.capture().Status.Phase; got != sondev1.PhaseCompleted {
				t.Fatalf("the first capture is %s", got)
			}
			job := w.jobs()[0]
			w.key = client.ObjectKeyFromObject(newCapture())
			w.settle()
			if e := w.capture().Status.Pods[0]; (e.Reason == sondev1.ReasonCeilingResults) != tc.waiting || (len(w.jobs()) == 1) != tc.waiting {
				t.Fatalf("entry %+v, Jobs %v, want it waiting: %t", e, w.jobNames(), tc.waiting)
			}
			if !tc.waiting {
				return
			}
			message := w.capture().Status.Pods[0].Message
			for _, want := range []string{"node-a", "2 may be kept there", "kubectl sonde delete", "cluster admin", "--max-results-per-node"} {
				if !strings.Contains(message, want) {
					t.Errorf("message %q does not say %q", message, want)
				}
			}
			if !probeGone(operatorNamespace).Delete(event.DeleteEvent{Object: &job}) {
				t.Error("the deletion of a kept Job wakes no capture")
			}
			w.remove(&job)
			if diff := cmp.Diff([]reconcile.Request{request(w.key)}, w.r.queuedForNode(t.Context(), &job)); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
			w.settle()
			if len(w.jobs()) != 1 {
				t.Errorf("Jobs %v after a place became free", w.jobNames())
			}
		})
	}
}

// TestQueueNeverServed checks that a Pod that stayed queued makes the capture Incomplete, with the reason.
func TestQueueNeverServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1", "web-2")...)
	w.r.Ceilings = ceiling.Limits{PodsPerCapture: 1}
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.clock.Step(31 * time.Second)
	w.agents(w.end(done(sondev1.ReasonDuration)))
	w.settle()
	if diff := cmp.Diff([]string{"web-2 Failed CeilingPods", "web-1 Completed Duration"}, w.entries()); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if got := w.condition(sondev1.ConditionComplete); got != "False CeilingPods" || w.capture().Status.Phase != sondev1.PhaseIncomplete {
		t.Errorf("Complete is %q, phase %s", got, w.capture().Status.Phase)
	}
}

// TestPlacesOnANode checks that namespaces share the places for probes on a node, and that some stay free for others.
func TestPlacesOnANode(t *testing.T) {
	t.Parallel()
	const limit = 8
	for name, tc := range map[string]struct {
		probes, waiting map[string]int // by namespace
		full            bool
	}{
		"an empty node":                         {},
		"the last of half of the places":        {probes: map[string]int{"shop": 3}},
		"more than half of the places":          {probes: map[string]int{"shop": 4}, full: true},
		"the first beside half":                 {probes: map[string]int{"bank": 4}},
		"the last of half of the rest":          {probes: map[string]int{"bank": 4, "shop": 1}},
		"more than half of the rest":            {probes: map[string]int{"bank": 4, "shop": 2}, full: true},
		"the last place":                        {probes: map[string]int{"bank": 4, "port": 2, "farm": 1}},
		"no place":                              {probes: map[string]int{"bank": 4, "port": 2, "farm": 1, "mill": 1}, full: true},
		"older captures of the namespace":       {waiting: map[string]int{"shop": 4}, full: true},
		"many that wait in a larger namespace":  {probes: map[string]int{"bank": 4}, waiting: map[string]int{"bank": 100}},
		"an older one of a smaller namespace":   {probes: map[string]int{"bank": 4, "shop": 1, "port": 1}, waiting: map[string]int{"farm": 9}, full: true},
		"the last place, and another was first": {probes: map[string]int{"bank": 4, "port": 2, "farm": 1}, waiting: map[string]int{"mill": 1}, full: true},
	} {
		t.Run(name, func(t *testing.T) {
			if n := placesFor("shop", tc.probes, tc.waiting); n.full(limit) != tc.full {
				t.Errorf("full is %t for %+v, want %t", !tc.full, n, tc.full)
			}
		})
	}
}

// TestQueueOfNodeIsInOrder checks that a free place on a node goes to the older capture.
func TestQueueOfNodeIsInOrder(t *testing.T) {
	t.Parallel()
	older := other("a", -time.Minute, begun, func(pc *sondev1.PacketCapture) {
		pc.Status.Pods = []sondev1.PodResult{{UID: "u", Name: "else-1", Node: "node-a", Phase: sondev1.PhasePending, Reason: sondev1.ReasonCeilingNode}}
	})
	w := newWorld(t, newCapture(), append(deployment("web-1"), older)...)
	w.r.Ceilings = ceiling.Limits{ProbesPerNode: 1}
	w.settle()
	if diff := cmp.Diff([]string{"web-1 Pending CeilingNode"}, w.entries()); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func requestOf(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// TestQueueIsWokenByEvents checks which events free room, and which captures they wake: as many of a namespace as there is room
// for, the oldest first, and for a node the oldest of each namespace.
func TestQueueIsWokenByEvents(t *testing.T) {
	t.Parallel()
	waits := func(pc *sondev1.PacketCapture) {
		pc.Status.Pods = []sondev1.PodResult{{UID: "u", Name: "else-1", Node: "node-a", Phase: sondev1.PhasePending, Reason: sondev1.ReasonCeilingNode}}
	}
	w := newWorld(t, newCapture(waits), other("running", 0, begun), other("first", -2*time.Minute), other("second", -time.Minute, waits),
		other("elsewhere", -3*time.Minute, waits, func(pc *sondev1.PacketCapture) { pc.Namespace = "private" }))
	w.r.Ceilings = ceiling.Limits{CapturesPerNamespace: 3, ProbesPerNode: 1}
	ended := other("ended", 0, begun, func(pc *sondev1.PacketCapture) { pc.Status.Phase = sondev1.PhaseCompleted })
	if diff := cmp.Diff([]reconcile.Request{requestOf("shop", "first"), requestOf("shop", "second")}, w.r.queuedBehind(t.Context(), ended)); diff != "" {
		t.Errorf("woken by the end of a capture (-want +got):\n%s", diff)
	}
	agent := webPod("agent", func(p *corev1.Pod) {
		p.Namespace, p.Labels = operatorNamespace, map[string]string{sondev1.LabelUID: "x"}
	})
	if diff := cmp.Diff([]reconcile.Request{requestOf("private", "elsewhere"), requestOf("shop", "second")}, w.r.queuedForNode(t.Context(), target.SlimAgent(agent))); diff != "" {
		t.Errorf("woken by the end of a probe (-want +got):\n%s", diff)
	}

	running := other("ended", 0, begun)
	over := agent.DeepCopy()
	over.Status.Phase = corev1.PodFailed
	forged := agent.DeepCopy()
	forged.Namespace = "shop"
	for name, tc := range map[string]struct{ got, want bool }{
		"a capture ends":               {captureEnded().Update(event.UpdateEvent{ObjectOld: running, ObjectNew: ended}), true},
		"a capture goes on":            {captureEnded().Update(event.UpdateEvent{ObjectOld: running, ObjectNew: running}), false},
		"a running capture is deleted": {captureEnded().Delete(event.DeleteEvent{Object: running}), true},
		"an ended one is deleted":      {captureEnded().Delete(event.DeleteEvent{Object: ended}), false},
		"a capture is created":         {captureEnded().Create(event.CreateEvent{Object: running}), false},
		"a probe ends":                 {probeGone(operatorNamespace).Update(event.UpdateEvent{ObjectOld: target.SlimAgent(agent), ObjectNew: target.SlimAgent(over)}), true},
		"its Pod is deleted":           {probeGone(operatorNamespace).Delete(event.DeleteEvent{Object: target.SlimAgent(agent)}), true},
		"after its end":                {probeGone(operatorNamespace).Delete(event.DeleteEvent{Object: target.SlimAgent(over)}), false},
		"a forged probe is deleted":    {probeGone(operatorNamespace).Delete(event.DeleteEvent{Object: target.SlimAgent(forged)}), false},
		"a Pod of a user is deleted":   {probeGone(operatorNamespace).Delete(event.DeleteEvent{Object: target.SlimPod(webPod("web-1"))}), false},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %t, want %t", name, tc.got, tc.want)
		}
	}
}

// TestNoJobOnANodeThatDoesNotExist: a user may create Pods with any nodeName. Those on nodes that do not exist get no Job, and each
// node is read once in a pass.
func TestNoJobOnANodeThatDoesNotExist(t *testing.T) {
	t.Parallel()
	on := func(name, node string) *corev1.Pod {
		return webPod(name, func(p *corev1.Pod) { p.Spec.NodeName = node })
	}
	w := newWorld(t, newCapture(), append(deployment("web-1", "web-2"), on("web-3", "ghost-1"), on("web-4", "ghost-1"), on("web-5", "ghost-2"))...)
	w.ghosts = []string{"ghost-1", "ghost-2"}
	w.pass()
	if diff := cmp.Diff([]string{"web-1-qwer", "web-2-qwer"}, w.jobNames()); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
	w.settle()
	want := []string{"web-3 Failed NodeLost", "web-4 Failed NodeLost", "web-5 Failed NodeLost", "web-1 Pending Pending", "web-2 Pending Pending"}
	if diff := cmp.Diff(want, w.entries()); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if got, want := w.capture().Status.Pods[0].Message, "node ghost-1 does not exist"; !strings.Contains(got, want) {
		t.Errorf("message %q does not say %q", got, want)
	}
	w.add(on("web-6", "node-b"), on("web-7", "node-b"))
	w.nodeReads = map[string]int{}
	w.pass()
	if diff := cmp.Diff(map[string]int{"node-b": 1}, w.nodeReads); diff != "" {
		t.Errorf("reads of nodes (-want +got):\n%s", diff)
	}
}

// TestPodsOnManyNodesWait: a pass reads a bounded number of nodes. Pods on others get their Jobs in later passes.
func TestPodsOnManyNodesWait(t *testing.T) {
	t.Parallel()
	objects := deployment()
	for i := range maxNodeReads + 2 {
		objects = append(objects, webPod(fmt.Sprintf("web-%03d", i), func(p *corev1.Pod) { p.Spec.NodeName = "node-of-" + p.Name }))
	}
	w := newWorld(t, newCapture(), objects...)
	w.pass()
	if len(w.nodeReads) != maxNodeReads || len(w.jobs()) != maxNodeReads {
		t.Errorf("the first pass reads %d nodes and creates %d Jobs, want %d", len(w.nodeReads), len(w.jobs()), maxNodeReads)
	}
	w.settle()
	if len(w.jobs()) != maxNodeReads+2 {
		t.Errorf("%d Jobs, want %d", len(w.jobs()), maxNodeReads+2)
	}
}

// TestBytesOfANamespaceOnANode checks that the results of a namespace on a node, kept or to come, may have so many bytes together
// that the next capture waits. A capture whose maxBytes is above the ceiling waits until the namespace has nothing there.
func TestBytesOfANamespaceOnANode(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	of := func(namespace string, bytes int64) func(*sondev1.PacketCapture) {
		return func(pc *sondev1.PacketCapture) {
			pc.Namespace, pc.Spec.TargetNamespace, pc.Spec.TargetDeployment, pc.Spec.MaxBytes = namespace, "shop", "web", bytes
		}
	}
	for name, tc := range map[string]struct {
		limit   int64
		ended   bool // the first capture, whose result is kept
		first   func(*sondev1.PacketCapture)
		bytes   int64
		waiting bool
	}{
		"no ceiling":            {first: of("shop", 30*gib), bytes: 30 * gib},
		"room":                  {limit: 8 * gib, first: of("shop", 4*gib), bytes: 4 * gib},
		"a result is kept":      {limit: 8 * gib, ended: true, first: of("shop", 4*gib), bytes: 4*gib + 1, waiting: true},
		"a probe runs":          {limit: 8 * gib, first: of("shop", 5*gib), bytes: 4 * gib, waiting: true},
		"another namespace's":   {limit: 8 * gib, first: of("hub", 8*gib), bytes: 8 * gib},
		"above the ceiling":     {limit: 8 * gib, first: of("hub", 8*gib), bytes: 9 * gib},
		"above it, behind some": {limit: 8 * gib, ended: true, first: of("shop", 1), bytes: 9 * gib, waiting: true},
	} {
		t.Run(name, func(t *testing.T) {
			first := other("a", -time.Minute, tc.first)
			w := newWorld(t, first, append(deployment("web-1"), newCapture(of("shop", tc.bytes)))...)
			w.r.Ceilings = ceiling.Limits{BytesPerNode: tc.limit}
			w.settle()
			if len(w.jobs()) != 1 {
				t.Fatalf("Jobs %v of the first capture", w.jobNames())
			}
			if tc.ended {
				w.agents(w.attach)
				w.clock.Step(31 * time.Second)
				w.agents(w.end(done(sondev1.ReasonDuration)))
				w.settle()
			}
			job := w.jobs()[0]
			w.key = client.ObjectKeyFromObject(newCapture())
			w.settle()
			if e := w.capture().Status.Pods[0]; (e.Reason == sondev1.ReasonCeilingBytes) != tc.waiting || (len(w.jobs()) == 1) != tc.waiting {
				t.Fatalf("entry %+v, Jobs %v, want it waiting: %t", e, w.jobNames(), tc.waiting)
			}
			if !tc.waiting {
				return
			}
			message := w.capture().Status.Pods[0].Message
			for _, want := range []string{"node-a", "8589934592", "smaller maxBytes", "kubectl sonde delete", "cluster admin", "--max-namespace-bytes-per-node"} {
				if !strings.Contains(message, want) {
					t.Errorf("message %q does not say %q", message, want)
				}
			}
			w.remove(&job)
			if diff := cmp.Diff([]reconcile.Request{request(w.key)}, w.r.queuedForNode(t.Context(), &job)); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
			w.settle()
			if len(w.jobs()) != 1 {
				t.Errorf("Jobs %v after the result is gone", w.jobNames())
			}
		})
	}
}

// TestBytesOfOneCapture checks that the Pods of one capture on a node count together, and that bytes are kept for an older capture.
func TestBytesOfOneCapture(t *testing.T) {
	t.Parallel()
	older := other("a", -time.Minute, begun, func(pc *sondev1.PacketCapture) {
		pc.Spec.MaxBytes = 2 << 30
		pc.Status.Pods = []sondev1.PodResult{{UID: "u", Name: "else-1", Node: "node-b", Phase: sondev1.PhasePending, Reason: sondev1.ReasonCeilingBytes}}
	})
	onB := webPod("web-4", func(p *corev1.Pod) { p.Spec.NodeName = "node-b" })
	w := newWorld(t, newCapture(), append(deployment("web-1", "web-2", "web-3"), onB, older)...)
	w.r.Ceilings = ceiling.Limits{BytesPerNode: 2 << 30}
	w.settle()
	want := []string{"web-3 Pending CeilingBytes", "web-4 Pending CeilingBytes", "web-1 Pending Pending", "web-2 Pending Pending"}
	if diff := cmp.Diff(want, w.entries()); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}
