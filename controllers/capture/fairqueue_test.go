package capture

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

func requestOf(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// TestFairQueue checks that namespaces take turns, and that each namespace's requests keep their order.
func TestFairQueue(t *testing.T) {
	q := newFairQueue()
	for _, r := range []string{"a/1", "a/2", "a/3", "b/1", "c/1", "b/2"} {
		q.Push(requestOf(r[:1], r[2:]))
	}
	var got []string
	for q.Len() > 0 {
		r := q.Pop()
		q.ended(r.Namespace)
		got = append(got, r.Namespace+"/"+r.Name)
		if len(got) == 2 {
			q.Push(requestOf("d", "1"))
		}
	}
	if diff := cmp.Diff([]string{"a/1", "b/1", "c/1", "a/2", "b/2", "d/1", "a/3"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if len(q.waiting)+len(q.turns)+len(q.running) > 0 {
		t.Errorf("an empty queue keeps %v, %v, %v", q.waiting, q.turns, q.running)
	}
}

// TestWorkerForOthers checks that the passes of one namespace leave a worker to others, and continue when one of them has ended.
func TestWorkerForOthers(t *testing.T) {
	q := newQueue("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	get := func(want string) {
		t.Helper()
		if r, _ := q.Get(); r.String() != want {
			t.Errorf("next pass %s, want %s", r, want)
		}
	}
	for i := range workers {
		q.Add(requestOf("slow", fmt.Sprint(i)))
	}
	for i := range workers - 1 {
		get(fmt.Sprintf("slow/%d", i))
	}
	if n := q.Len(); n > 0 {
		t.Errorf("%d requests for the last worker, want none", n)
	}
	q.Add(requestOf("shop", "pc"))
	get("shop/pc")
	q.Add(requestOf("slow", "0")) // again, after its pass
	q.Done(requestOf("slow", "0"))
	get(fmt.Sprintf("slow/%d", workers-1))
	q.Done(requestOf("shop", "pc"))
	q.Done(requestOf("slow", "1"))
	get("slow/0")
}

// TestFlood checks that a thousand captures of one namespace put off another namespace's by one pass. The control is client-go's own
// order.
func TestFlood(t *testing.T) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond, time.Second)
	control := workqueue.NewTypedRateLimitingQueue(limiter)
	for name, tc := range map[string]struct {
		queue workqueue.TypedRateLimitingInterface[reconcile.Request]
		want  int
	}{"fair": {newQueue("test", limiter), 1}, "control": {control, 1000}} {
		t.Run(name, func(t *testing.T) {
			defer tc.queue.ShutDown()
			for i := range 1000 {
				tc.queue.Add(requestOf("flood", fmt.Sprint(i)))
			}
			tc.queue.Add(requestOf("shop", "pc"))
			before := 0
			for ; ; before++ {
				r, _ := tc.queue.Get()
				tc.queue.Done(r)
				if r.Namespace == "shop" {
					break
				}
			}
			if before != tc.want {
				t.Errorf("%d passes before that of the other namespace, want %d", before, tc.want)
			}
		})
	}
}

// TestQueueIsWokenByEvents checks which events free room, and which captures they wake: as many of a namespace as there is room
// for, the oldest first, and for a node the oldest of each namespace.
func TestQueueIsWokenByEvents(t *testing.T) {
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
