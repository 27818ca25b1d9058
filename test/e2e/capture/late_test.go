//go:build e2e

package capture

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

const (
	lateBy     = 10 * time.Second // from the creation of a Job to its start
	lateLasts  = 5 * time.Second  // the capture's duration
	latePods   = 6                // that join, one after another
	lateWithin = 2 * time.Minute
)

// A capture of 5 s whose probes attach 10 s late: each Pod that exists when the phase is Capturing is captured, or has an entry
// that says why not. The Event names the end that the status has.
func TestLateProbes(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	d := cluster.Deployment(t, ns, "web", 1, "idle")
	cluster.ReadyPods(t, d, 1)
	cluster.SuspendJobs(t, sondev1.LabelAppInstance, ns)
	cluster.ResumeJobs(t, sondev1.LabelAppInstance, ns, lateBy)
	pc := &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Name: "late", Namespace: ns, Labels: map[string]string{sondev1.LabelAppInstance: ns}},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: d.Name, Duration: lateLasts.String(), RetainFor: "10s"},
	}
	cluster.CreateEventually(t, cluster.Admin, pc)

	joined := map[string]corev1.Pod{} // they exist while the phase is Capturing
	replicas := int32(1)
	cluster.Eventually(t, lateWithin, "capture ended", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := cluster.Admin.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return err
		}
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
			return err
		}
		if pc.Status.Phase == sondev1.PhaseCapturing {
			for _, p := range pods.Items {
				joined[string(p.UID)] = p
			}
			if replicas <= latePods && len(pods.Items) == int(replicas) {
				replicas++
				cluster.Scale(t, d, replicas)
			}
		}
		if !pc.Status.Phase.Final() {
			return fmt.Errorf("phase %s, end %v", pc.Status.Phase, pc.Status.EndTime)
		}
		return nil
	})
	wantAccounted(t, pc, joined)
	if until := pc.Status.EndTime; until == nil || until.Sub(pc.Status.StartTime.Time) < lateBy+lateLasts-time.Second {
		t.Errorf("start %v, end %v, want at least %v between them", pc.Status.StartTime, until, lateBy+lateLasts)
	}
	cluster.Eventually(t, time.Minute, "Event about the end", func(ctx context.Context) error {
		var list corev1.EventList
		if err := cluster.Admin.List(ctx, &list, client.InNamespace(ns), client.MatchingFields{"involvedObject.uid": string(pc.UID), "reason": "Capturing"}); err != nil {
			return err
		}
		for i := range list.Items {
			if strings.Contains(list.Items[i].Message, "until "+pc.Status.EndTime.UTC().Format(time.RFC3339)) {
				return nil
			}
		}
		return fmt.Errorf("no Event names %v: %+v", pc.Status.EndTime, list.Items)
	})
}

// wantAccounted asserts that each Pod has an entry, that the result is complete only if all are, and that Pods joined late
// enough for the test to mean something.
func wantAccounted(t *testing.T, pc *sondev1.PacketCapture, joined map[string]corev1.Pod) {
	t.Helper()
	entries, late := map[string]sondev1.PodResult{}, 0
	for _, e := range pc.Status.Pods {
		entries[e.UID] = e
		t.Logf("%s: %s %s, %s", e.Name, e.Phase, e.Reason, e.Message)
	}
	complete := true
	for uid, p := range joined {
		e, ok := entries[uid]
		if !ok {
			t.Errorf("Pod %s, created at %v while the phase was Capturing, has no entry", p.Name, p.CreationTimestamp)
		}
		complete = complete && e.Phase == sondev1.PhaseCompleted
		if p.CreationTimestamp.After(pc.Status.StartTime.Add(lateLasts)) {
			late++
		}
	}
	if complete != (pc.Status.Phase == sondev1.PhaseCompleted) {
		t.Errorf("phase %s, all Pods completed: %t", pc.Status.Phase, complete)
	}
	if late == 0 {
		t.Errorf("no Pod joined later than %v after the start while the phase was Capturing", lateLasts)
	}
	t.Logf("%d Pods, %d of them joined later than %v after the start; end %v", len(joined), late, lateLasts, pc.Status.EndTime)
}
