//go:build e2e

package trace

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

const (
	endLateBy = 10 * time.Second // from the creation of a Job to its start
	endLasts  = 5 * time.Second  // the trace's duration
	endPods   = 10               // that are created, one each endEach
	endEach   = 1500 * time.Millisecond
)

// A trace of 5 s whose probes attach 10 s late: each Pod that is created while Gating is True has a gate, and is traced.
func TestGateUntilTheEnd(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	d := cluster.Deployment(t, ns, "web", 1, "idle")
	before := cluster.ReadyPods(t, d, 1)[0].UID
	cluster.SuspendJobs(t, sondev1.LabelAppInstance, ns)
	cluster.ResumeJobs(t, sondev1.LabelAppInstance, ns, endLateBy)
	tr := &sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{Name: "late", Namespace: ns, Labels: map[string]string{sondev1.LabelAppInstance: ns}},
		Spec: sondev1.TraceSpec{
			TargetDeployment: d.Name, Duration: endLasts.String(), RetainFor: "10s", Events: []sondev1.TraceGroup{sondev1.TraceProcess},
			Gate: &sondev1.TraceGate{Enabled: true, Timeout: "60s"},
		},
	}
	cluster.CreateEventually(t, cluster.Admin, tr)

	created := map[string]corev1.Pod{} // they exist while Gating is True
	replicas, last := int32(1), time.Now()
	cluster.Eventually(t, 3*time.Minute, "trace ended", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := cluster.Admin.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return err
		}
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(tr), tr); err != nil {
			return err
		}
		if apimeta.IsStatusConditionTrue(tr.Status.Conditions, sondev1.ConditionGating) {
			for _, p := range pods.Items {
				if p.UID != before {
					created[string(p.UID)] = p
				}
			}
			if replicas <= endPods && time.Since(last) >= endEach {
				last = time.Now()
				replicas++
				cluster.Scale(t, d, replicas)
			}
		}
		if !tr.Status.Phase.Final() {
			return fmt.Errorf("phase %s, conditions %+v", tr.Status.Phase, tr.Status.Conditions)
		}
		return nil
	})
	entries, late := map[string]sondev1.PodResult{}, 0
	for _, e := range tr.Status.Pods {
		entries[e.UID] = e
		t.Logf("%s: %s %s, gate %+v, %s", e.Name, e.Phase, e.Reason, e.Gate, e.Message)
	}
	for uid, p := range created {
		e, ok := entries[uid]
		if !cluster.IsGated(&p) || !ok || e.Phase != sondev1.PhaseCompleted || e.Gate == nil || e.Gate.Outcome != sondev1.GateOpened {
			t.Errorf("Pod %s, created at %v: gated %t, entry %+v; want it gated and traced", p.Name, p.CreationTimestamp, cluster.IsGated(&p), e)
		}
		if p.CreationTimestamp.After(tr.Status.StartTime.Add(endLasts)) {
			late++
		}
	}
	if late == 0 {
		t.Errorf("no Pod was created later than %v after the start while Gating was True", endLasts)
	}
	t.Logf("%d Pods, %d of them created later than %v after the start; end %v", len(created), late, endLasts, tr.Status.EndTime)
}
