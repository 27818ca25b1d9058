package capture

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// watched sends the events of the watch of Pods to the reconciler. before and now are nil if the Pod did not, or does not, exist.
func (w *world) watched(before, now *corev1.Pod) {
	w.t.Helper()
	wakes := target.Wakes{Kind: w.r.Kind.Capture, Reader: w.r.Client}
	cached := func(pod *corev1.Pod) client.Object {
		if pod == nil {
			return nil
		}
		return target.SlimPod(pod)
	}
	w.r.recordDeparted(w.t.Context(), wakes, cached(before), cached(now))
}

// TestPodBetweenPasses checks that a Pod that came and went between two passes stands in the status, that the result is not complete
// then, and that a Pod that did not run, or not during the capture, does not.
func TestPodBetweenPasses(t *testing.T) {
	t.Parallel()
	ended := func(address string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Phase, p.Status.PodIP = corev1.PodFailed, address }
	}
	of := func(kind, name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.OwnerReferences = owned(kind, name, "uid-other") }
	}
	tests := map[string]struct {
		change        []func(*corev1.Pod) // of the Pod
		before, after func(*corev1.Pod)   // its last two states; nil if it does not exist
		exists        bool                // as an object, after that
		duration      time.Duration       // of the capture's rest, before the Pod is created
		wantEntry     bool
	}{
		"deleted":                               {before: func(*corev1.Pod) {}, wantEntry: true},
		"evicted":                               {before: func(*corev1.Pod) {}, after: ended("10.2.0.1"), exists: true, wantEntry: true},
		"ended before the watch began":          {after: ended("10.2.0.1"), exists: true, wantEntry: true},
		"its ReplicaSet is gone, too":           {change: []func(*corev1.Pod){of("ReplicaSet", "web-5d8f9c")}, before: func(*corev1.Pod) {}, wantEntry: true},
		"control: of another Deployment":        {change: []func(*corev1.Pod){of("ReplicaSet", "web-api-5d8f9c")}, before: func(*corev1.Pod) {}},
		"control: its owner is made up":         {change: []func(*corev1.Pod){func(p *corev1.Pod) { p.OwnerReferences = owned("ReplicaSet", "web-rs", "uid-made-up") }}, before: func(*corev1.Pod) {}},
		"control: of a StatefulSet":             {change: []func(*corev1.Pod){of("StatefulSet", "web")}, before: func(*corev1.Pod) {}},
		"control: never had a node":             {change: []func(*corev1.Pod){func(p *corev1.Pod) { p.Spec.NodeName = "" }}, before: func(*corev1.Pod) {}},
		"control: refused by the kubelet":       {before: func(*corev1.Pod) {}, after: ended(""), exists: true},
		"control: ended before the capture":     {change: []func(*corev1.Pod){func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(dawn.Add(-time.Hour)) }}, after: ended("10.2.0.1"), exists: true},
		"control: its grace period was over":    {before: func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(dawn.Add(-time.Second))) }},
		"control: created after the end":        {before: func(*corev1.Pod) {}, duration: 6 * time.Second},
		"control: deleted long after it ended":  {before: ended("10.2.0.1")},
		"an event is skipped, the name is used": {before: func(*corev1.Pod) {}, after: func(p *corev1.Pod) { p.UID = "uid-other" }, wantEntry: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := lateCapture(t)
			w.clock.Step(time.Second + tc.duration)
			pod := webPod("web-2", append([]func(*corev1.Pod){w.now}, tc.change...)...)
			var before, after *corev1.Pod
			if tc.before != nil {
				before = pod.DeepCopy()
				tc.before(before)
			}
			if tc.after != nil {
				after = pod.DeepCopy()
				tc.after(after)
			}
			if tc.exists {
				w.add(after.DeepCopy())
			}
			w.watched(before, after)
			w.settle()
			w.clock.Step(10 * time.Second)
			w.agents(w.end(done(sondev1.ReasonDuration)))
			w.settle()
			if !tc.wantEntry {
				w.check("over", sondev1.PhaseCompleted, "False Ended", "True Duration")
				return
			}
			if diff := cmp.Diff([]string{"web-2 Failed TargetGone", "web-1 Completed Duration"}, entries(w.capture().Status)); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			w.check("over", sondev1.PhaseIncomplete, "False Ended", "False TargetGone")
			if got := w.capture().Status.Pods[0]; got.Message != departedMessage || got.Node != "node-a" || got.Job != "" {
				t.Errorf("entry %+v", got)
			}
			if sent := w.sent(); strings.Count(sent, "Pod web-2: Failed") != 1 {
				t.Errorf("Events: %s", sent)
			}
			if len(w.r.departed.pods) > 0 {
				t.Errorf("the capture is over, and its Pods are still recorded: %v", w.r.departed.pods)
			}
		})
	}
}

// TestPodBeforeTheStart checks that a Pod that was gone before the capture began is no part of it.
func TestPodBeforeTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment()...)
	w.settle()
	w.clock.Step(time.Minute)
	w.watched(webPod("web-2", w.now), nil)
	w.clock.Step(time.Second)
	w.add(webPod("web-1", w.now))
	w.settle()
	w.agents(w.attach)
	w.settle()
	if diff := cmp.Diff([]string{"web-1 Capturing Capturing"}, entries(w.capture().Status)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// TestPodWithAJobDeparts checks that a Pod that has a Job is not recorded, also while the cache does not have the Job.
func TestPodWithAJobDeparts(t *testing.T) {
	t.Parallel()
	for name, stale := range map[string]bool{"the cache has the Job": false, "the cache does not have the Job": true} {
		t.Run(name, func(t *testing.T) {
			w := lateCapture(t)
			w.clock.Step(time.Second)
			w.add(webPod("web-2", w.now))
			w.pass()
			pc := w.capture() // as if the pass could not write it
			pc.Status.Pods = pc.Status.Pods[:1]
			w.update(pc)
			w.stale = stale
			w.remove(webPod("web-2"))
			w.watched(webPod("web-2", w.now), nil)
			w.pass()
			for _, e := range w.capture().Status.Pods {
				if e.Name == "web-2" && e.Job == "" {
					t.Errorf("entry %+v, want its Job in it", e)
				}
			}
		})
	}
}

// TestDepartedBeforeTheStartHideNone checks that a Pod is recorded however many departed before the capture began, also if no pass
// was made since then.
func TestDepartedBeforeTheStartHideNone(t *testing.T) {
	t.Parallel()
	for name, pass := range map[string]bool{"after a pass": true, "before the next pass": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newCapture(), deployment()...)
			w.settle()
			departs := func(i int) {
				pod := webPod("web-x", w.now)
				pod.UID = types.UID(fmt.Sprintf("%08x-1111-4222-8333-444455556666", i))
				w.watched(pod, nil)
			}
			for i := range maxDeparted {
				departs(i)
			}
			w.clock.Step(time.Second)
			w.add(webPod("web-1", w.now))
			w.pass()
			if pass {
				w.settle()
				if n := len(w.r.departed.pods[w.key]); n > 0 {
					t.Errorf("%d Pods that departed before the start are still recorded", n)
				}
			}
			w.clock.Step(time.Second)
			departs(maxDeparted)
			w.settle()
			if diff := cmp.Diff([]string{"web-x Failed TargetGone", "web-1 Pending Pending"}, entries(w.capture().Status)); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDepartedPodsLeaveRoom checks that departed Pods, which have no files, take no places of others in a status.
func TestDepartedPodsLeaveRoom(t *testing.T) {
	t.Parallel()
	some := func(n int, e sondev1.PodResult) (all []sondev1.PodResult) {
		for i := range n {
			e.Name = fmt.Sprintf("%s-%03d", e.Reason, i)
			all = append(all, e)
		}
		return all
	}
	departed := sondev1.PodResult{Phase: sondev1.PhaseFailed, Reason: sondev1.ReasonTargetGone}
	running := sondev1.PodResult{Phase: sondev1.PhaseCapturing, Reason: sondev1.ReasonCapturing, Job: "job"}
	tests := map[string]struct{ departed, running, wantDeparted, wantRunning int }{
		"room for all":           {departed: 60, running: 140, wantDeparted: 60, wantRunning: 140},
		"room for the others":    {departed: 1000, running: 120, wantDeparted: 80, wantRunning: 120},
		"no room for the others": {departed: 1000, running: 300, wantDeparted: minDeparted, wantRunning: sondev1.MaxPodEntries - minDeparted},
		"control: departed only": {departed: 1000, wantDeparted: sondev1.MaxPodEntries},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			listed, omitted := bounded(append(some(tc.departed, departed), some(tc.running, running)...), 0, false)
			n := 0
			for _, e := range listed {
				if isDeparted(e) {
					n++
				}
			}
			if n != tc.wantDeparted || len(listed)-n != tc.wantRunning || int(omitted)+len(listed) != tc.departed+tc.running {
				t.Errorf("%d departed and %d other Pods, %d omitted", n, len(listed)-n, omitted)
			}
		})
	}
}

// TestUntracedPodsAreListed: that a Pod has started untraced is only in its entry.
func TestUntracedPodsAreListed(t *testing.T) {
	t.Parallel()
	var all []sondev1.PodResult
	for i := range sondev1.MaxPodEntries + 1 {
		all = append(all, sondev1.PodResult{Name: fmt.Sprintf("web-%03d", i), Phase: sondev1.PhaseCapturing, Job: "job"})
	}
	last := &all[len(all)-1]
	last.Gate = &sondev1.GateResult{Outcome: sondev1.GateUntraced}
	name := last.Name
	if listed, omitted := bounded(all, 0, false); listed[0].Name != name || omitted != 1 {
		t.Errorf("%s comes first of %d, %d are omitted; want %s", listed[0].Name, len(listed), omitted, name)
	}
}

// TestDepartedPodsAreBounded checks that the record of one capture has a bound, and is removed with the capture.
func TestDepartedPodsAreBounded(t *testing.T) {
	t.Parallel()
	w := lateCapture(t)
	w.clock.Step(time.Second)
	for i := range 2 * maxDeparted {
		pod := webPod("web-x", w.now)
		pod.UID = types.UID(fmt.Sprintf("%08x-1111-4222-8333-444455556666", i))
		w.watched(pod, nil)
	}
	if n := len(w.r.departed.pods[w.key]); n != maxDeparted {
		t.Errorf("%d Pods are recorded, want %d", n, maxDeparted)
	}
	w.settle()
	status := w.capture().Status
	if n := int32(len(status.Pods)) + status.PodsOmitted; n != maxDeparted+1 || len(status.Pods) != sondev1.MaxPodEntries {
		t.Errorf("%d Pods, %d of them listed", n, len(status.Pods))
	}
	w.remove(w.capture())
	w.pass()
	if len(w.r.departed.pods) > 0 {
		t.Error("the capture is gone, and its Pods are still recorded")
	}
}

// Many captures of one flood do not fill the memory. The flood takes places from itself, not from another's capture.
func TestDepartedOfManyCaptures(t *testing.T) {
	t.Parallel()
	d, shop := &departedPods{}, types.NamespacedName{Namespace: "shop", Name: "web"}
	d.add(shop, "one", departedPod{name: "one"})
	for c := range 60 {
		for i := range maxDeparted {
			d.add(types.NamespacedName{Namespace: "flood", Name: fmt.Sprint(c)}, types.UID(fmt.Sprint(i)), departedPod{})
		}
	}
	recorded := 0
	for _, pods := range d.pods {
		recorded += len(pods)
	}
	if recorded != maxAllDeparted || d.total != recorded {
		t.Errorf("%d Pods are recorded and %d counted, want %d", recorded, d.total, maxAllDeparted)
	}
	if len(d.pods[shop]) != 1 {
		t.Error("another's capture lost its Pod")
	}
	for key := range d.pods {
		d.forgetAll(key)
	}
	if d.total != 0 {
		t.Errorf("%d are counted of none", d.total)
	}
}
