package priority_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/operator/priority"
)

// TestBuild holds it against what 0.1.0 installed: of a PriorityClass that exists the API changes neither value nor policy.
func TestBuild(t *testing.T) {
	var got schedulingv1.PriorityClass
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(priority.Build().Object, &got, true); err != nil {
		t.Fatal(err)
	}
	want := schedulingv1.PriorityClass{
		TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"},
		ObjectMeta: metav1.ObjectMeta{Name: agentjob.PriorityClass, Labels: map[string]string{
			"app.kubernetes.io/name": "sonde", "app.kubernetes.io/part-of": "packet-capture-operator", "app.kubernetes.io/managed-by": "sonde",
		}},
		Value: 1000000, PreemptionPolicy: new(corev1.PreemptNever),
		Description: "Sonde's probes. Above ordinary workloads in eviction order, never preempting them.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// What the API server returns of it, which leaves out what is empty.
	live, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
	if err != nil {
		t.Fatal(err)
	}
	if !platform.Covers(priority.Build(), &unstructured.Unstructured{Object: live}) {
		t.Errorf("never as built, and so written in each pass: the API server returns %v", live)
	}
}
