package collector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

func TestMetrics(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := sondev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for i, isTrue := range [][]string{nil, {sondev1.ConditionReady}, {sondev1.ConditionReady, sondev1.ConditionReleased}, {sondev1.ConditionStalled}, {sondev1.ConditionReconciling}, {sondev1.ConditionReleased}} {
		c := &sondev1.Collector{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: fmt.Sprint("c-", i)}}
		for _, kind := range isTrue {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
		}
		b.WithObjects(c)
	}
	want := `
# HELP sonde_collectors Collectors that exist, by state.
# TYPE sonde_collectors gauge
sonde_collectors{state="Held"} 1
sonde_collectors{state="Ready"} 2
sonde_collectors{state="Reconciling"} 2
sonde_collectors{state="Stalled"} 1
`
	if err := testutil.CollectAndCompare(Metrics(b.Build()), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// The log says for whom Helm ran, and how that ended, once. When the report is read, another user may have changed the spec.
func TestAudit(t *testing.T) {
	t.Run("of the spec", func(t *testing.T) { testAudit(t, "ann", func(*world, *sondev1.Collector) {}) })
	t.Run("of an earlier spec", func(t *testing.T) {
		testAudit(t, "", func(w *world, c *sondev1.Collector) { w.change(c, func(s *sondev1.CollectorSpec) { s.Suspend = true }) })
	})
}

func testAudit(t *testing.T, requester string, meanwhile func(*world, *sondev1.Collector)) {
	t.Helper()
	var records []string
	log := funcr.NewJSON(func(line string) {
		if strings.Contains(line, `"audit"`) {
			records = append(records, line)
		}
	}, funcr.Options{})
	c := newCollector()
	w := newWorld(t, c)
	pass := func() {
		t.Helper()
		key := client.ObjectKey{Namespace: "acme", Name: "mine"}
		if _, err := w.Reconcile(ctrl.LoggerInto(t.Context(), log), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
	}
	pass()
	pass()
	meanwhile(w, c)
	w.end(&w.jobs()[0], release.Report{Outcome: release.Ready, Reason: release.ReasonReleased, Revision: 1})
	pass()
	pass()
	if len(records) != 2 {
		t.Fatalf("records %q, want two", records)
	}
	for i, texts := range [][]string{{`"audit":"ReleaseStarted"`, `"requester":"ann"`, `"targetNamespace":"acme"`, `"target":"collector-prod"`}, {`"audit":"ReleaseEnded"`, `"requester":"` + requester + `"`, `"outcome":"Ready"`, `"revision":1`}} {
		for _, text := range texts {
			if !strings.Contains(records[i], text) {
				t.Errorf("record %s lacks %s", records[i], text)
			}
		}
	}
}
