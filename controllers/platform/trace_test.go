package platform

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// gating returns a Trace that gates new Pods of its target.
func gating(t *testing.T, name string, change func(*sondev1.Trace)) *sondev1.Trace {
	t.Helper()
	trace := &sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: name, UID: types.UID(name)},
		Spec: sondev1.TraceSpec{
			TargetNamespace: "shop", TargetDeployment: "web", RetainFor: "1h",
			Gate: &sondev1.TraceGate{Enabled: true, Timeout: "30s", OnTimeout: sondev1.GateProceed},
		},
		Status: sondev1.CaptureStatus{
			Phase:      sondev1.PhasePending,
			Conditions: []metav1.Condition{{Type: sondev1.ConditionGating, Status: metav1.ConditionTrue}},
		},
	}
	if change != nil {
		change(trace)
	}
	return trace
}
