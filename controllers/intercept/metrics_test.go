package intercept

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
)

func TestMetrics(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{batchv1.AddToScheme, sondev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for name, phase := range map[string]sondev1.InterceptPhase{"a": "", "b": sondev1.InterceptPending, "c": sondev1.InterceptActive} {
		q := &sondev1.InterceptRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		q.Status.Phase = phase
		b = b.WithObjects(q)
	}
	for _, kind := range []string{agentjob.KindCarrier, "PacketCapture"} {
		b = b.WithObjects(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: sondeSystem, Name: strings.ToLower(kind), Labels: map[string]string{sondev1.LabelKind: kind}}})
	}
	want := `
# HELP sonde_carriers Carriers that exist, one for each intercepted Pod.
# TYPE sonde_carriers gauge
sonde_carriers 1
# HELP sonde_intercepts InterceptRequests that exist, by phase.
# TYPE sonde_intercepts gauge
sonde_intercepts{phase="Active"} 1
sonde_intercepts{phase="Ended"} 0
sonde_intercepts{phase="Failed"} 0
sonde_intercepts{phase="Lost"} 0
sonde_intercepts{phase="Pending"} 2
`
	if err := testutil.CollectAndCompare(Metrics(b.Build(), sondeSystem), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
