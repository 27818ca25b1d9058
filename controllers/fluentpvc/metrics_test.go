package fluentpvc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

func TestMetrics(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := sondev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for i, phase := range []sondev1.BindingPhase{"", sondev1.BindingReady, sondev1.BindingReady, sondev1.BindingFinalizerJobFailed} {
		b.WithObjects(&sondev1.FluentPVCBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("logs-", i)}, Status: sondev1.FluentPVCBindingStatus{Phase: phase},
		})
	}
	want := `
# HELP sonde_fluentpvc_bindings FluentPVCBindings that exist, by phase.
# TYPE sonde_fluentpvc_bindings gauge
sonde_fluentpvc_bindings{phase="DataLost"} 0
sonde_fluentpvc_bindings{phase="Discarded"} 0
sonde_fluentpvc_bindings{phase="FinalizerJobApplied"} 0
sonde_fluentpvc_bindings{phase="FinalizerJobFailed"} 1
sonde_fluentpvc_bindings{phase="FinalizerJobSucceeded"} 0
sonde_fluentpvc_bindings{phase="OutOfUse"} 0
sonde_fluentpvc_bindings{phase="Pending"} 1
sonde_fluentpvc_bindings{phase="Ready"} 2
sonde_fluentpvc_bindings{phase="Unknown"} 0
`
	if err := testutil.CollectAndCompare(Metrics(b.Build()), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestPhasesOfMetric checks that the metric has each phase of the state machine.
func TestPhasesOfMetric(t *testing.T) {
	known := map[sondev1.BindingPhase]bool{}
	for _, p := range phases {
		known[p] = true
	}
	for _, row := range transitions {
		if !known[row.from] {
			t.Errorf("the metric lacks phase %s", row.from)
		}
	}
}
