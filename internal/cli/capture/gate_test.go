package capture

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// The notes say how to start Pods that wait, but only once new Pods do wait.
func TestGateNotes(t *testing.T) {
	waits := []string{
		"New Pods of Deployment/web wait until they are traced, for up to 30s each. To start some:",
		"  kubectl rollout restart -n shop deployment/web",
	}
	yes := condition(v1alpha1.ConditionGating, metav1.ConditionTrue, v1alpha1.ReasonGating, "")
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		change     func(*v1alpha1.Trace)
		after      time.Duration // since the first View
		want       []string
	}{
		"not known yet":    {after: time.Minute},
		"just now":         {conditions: []metav1.Condition{yes}, after: gatePropagation - 1},
		"when all know it": {conditions: []metav1.Condition{yes}, after: gatePropagation, want: waits},
		"no longer": {
			conditions: []metav1.Condition{condition(v1alpha1.ConditionGating, metav1.ConditionFalse, v1alpha1.ReasonGateNotStarted, "the gate of Pod web-1 could not start")},
			after:      time.Minute, want: []string{"New Pods do not wait: the gate of Pod web-1 could not start"},
		},
		"another namespace, another time": {
			conditions: []metav1.Condition{yes}, after: time.Minute,
			change: func(t *v1alpha1.Trace) {
				t.Spec.TargetNamespace, t.Spec.TargetRef.Kind, t.Spec.Gate.Timeout = "bank", v1alpha1.TargetStatefulSet, "5m"
			},
			want: []string{
				"New Pods of StatefulSet/web wait until they are traced, for up to 5m each. To start some:",
				"  kubectl rollout restart -n bank statefulset/web",
			},
		},
		"a Pod": {
			conditions: []metav1.Condition{yes}, after: time.Minute,
			change: func(t *v1alpha1.Trace) { t.Spec.TargetRef.Kind = v1alpha1.TargetPod },
			want:   []string{"New Pods of the name web wait until they are traced, for up to 30s each."},
		},
		"no gate": {conditions: []metav1.Condition{yes}, after: time.Minute, change: func(t *v1alpha1.Trace) { t.Spec.Gate = nil }},
		"ended":   {conditions: []metav1.Condition{yes}, after: time.Minute, change: func(t *v1alpha1.Trace) { t.Status.Phase = v1alpha1.PhaseCompleted }},
		"stopped": {conditions: []metav1.Condition{yes}, after: time.Minute, change: func(t *v1alpha1.Trace) { t.Spec.Stop = true }},
	} {
		t.Run(name, func(t *testing.T) {
			target := web
			trace := &v1alpha1.Trace{Spec: v1alpha1.TraceSpec{TargetRef: &target, Gate: &v1alpha1.TraceGate{Enabled: true}}}
			trace.Namespace, trace.Name = "shop", "web-x7k2p"
			trace.Status.Phase, trace.Status.Conditions = v1alpha1.PhasePending, tc.conditions
			if tc.change != nil {
				tc.change(trace)
			}
			s := NewState(trace, noon)
			s.View(noon)
			if diff := cmp.Diff(tc.want, s.gate(noon.Add(tc.after))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
