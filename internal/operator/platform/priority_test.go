package platform_test

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
)

// The class is the one that 0.1.0 installed: the API allows changing neither value nor policy of a PriorityClass.
func TestPriorityClass(t *testing.T) {
	built := platform.PriorityClass()
	want := schedulingv1.PriorityClass{
		TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"},
		ObjectMeta: metav1.ObjectMeta{Name: agentjob.PriorityClass, Labels: map[string]string{
			"app.kubernetes.io/name": "sonde", "app.kubernetes.io/part-of": "packet-capture-operator", "app.kubernetes.io/managed-by": "sonde",
		}},
		Value: 1000000, PreemptionPolicy: new(corev1.PreemptNever),
		Description: "Sonde's probes. Above ordinary workloads in eviction order, never preempting them.",
	}
	if diff := cmp.Diff(want, typed[schedulingv1.PriorityClass](t, built)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The API server leaves empty fields out. If the operator set one, it would apply the class on every pass.
	live, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
	if err != nil {
		t.Fatal(err)
	}
	if !platform.Covers(built, &unstructured.Unstructured{Object: live}) {
		t.Errorf("built is %v, but the API server returns %v", built.Object, live)
	}
}
