package capture

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// leavesAfter makes a Pod that is being deleted, and whose grace period has passed this long after dawn.
func leavesAfter(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = new(metav1.NewTime(dawn.Add(d))), []string{"example.test/kept"}
	}
}

// TestPodOutlastsItsReplicaSet checks that a Pod that is being deleted is captured for its grace period although its ReplicaSet is gone,
// as after a rollout with revisionHistoryLimit 0.
func TestPodOutlastsItsReplicaSet(t *testing.T) {
	t.Parallel()
	of := func(set string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.OwnerReferences = owned("ReplicaSet", set, "uid-gone") }
	}
	w := newWorld(t, newCapture(), append(deployment("web-1"),
		webPod("web-old-1", of("web-5d8f9c"), leavesAfter(time.Minute)),
		webPod("web-old-2", of("web-rs"), leavesAfter(time.Minute)), // the ReplicaSet was deleted, and made again under its name
		webPod("web-overdue-1", of("web-5d8f9c"), leavesAfter(-time.Second)),
		webPod("web-api-1", of("web-api-5d8f9c"), leavesAfter(time.Minute)),
	)...)
	w.settle()
	var got []string
	for _, e := range w.capture().Status.Pods {
		got = append(got, e.Name+" "+string(e.Phase))
	}
	if diff := cmp.Diff([]string{"web-1 Pending", "web-old-1 Pending", "web-old-2 Pending"}, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// TestPodOutlastsItsDeployment checks that a Pod that joined before the target was deleted is captured for its grace period, that one
// that departs has an entry, and that the capture ends with them.
func TestPodOutlastsItsDeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.Duration = "10m" }), append(deployment("web-1"), webPod("web-2", leavesAfter(time.Minute)))...)
	w.hidden = "web-2" // it does not exist yet
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.clock.Step(time.Second)
	w.hidden = ""
	for _, o := range deployment() {
		w.remove(o)
	}
	w.remove(webPod("web-1"))
	w.agents(w.end(done(sondev1.ReasonTargetGone)))
	w.watched(webPod("web-3", w.now), nil)
	w.settle()
	w.attachNew()
	w.settle()
	want := []string{"web-3 Failed TargetGone", "web-1 Completed TargetGone", "web-2 Capturing Capturing"}
	if diff := cmp.Diff(want, entries(w.capture().Status)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	w.clock.Step(5 * time.Second)
	var left corev1.Pod
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web-2"}, &left); err != nil {
		t.Fatal(err)
	}
	left.Finalizers = nil
	if err := w.client.Update(t.Context(), &left); err != nil { // which removes it
		t.Fatal(err)
	}
	w.agents(w.end(done(sondev1.ReasonTargetGone)))
	w.settle()
	want[2] = "web-2 Completed TargetGone"
	if diff := cmp.Diff(want, entries(w.capture().Status)); diff != "" {
		t.Errorf("entries at the end (-want +got):\n%s", diff)
	}
	if s := w.capture().Status; s.Phase != sondev1.PhaseIncomplete || !s.EndTime.Time.Equal(w.clock.Now()) {
		t.Errorf("%s with end %v, want Incomplete at %v", s.Phase, s.EndTime, w.clock.Now())
	}
}

// TestFormerPodsDoNotStartACapture checks that a capture that waits for its target does not begin with the last Pods of an earlier one
// of its name: it would end with them.
func TestFormerPodsDoNotStartACapture(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), webPod("web-1", leavesAfter(time.Minute)))
	w.settle()
	if s := w.capture().Status; s.Phase != sondev1.PhasePending || len(s.Pods) > 0 {
		t.Errorf("%s with entries %v, want Pending without", s.Phase, entries(s))
	}
}
