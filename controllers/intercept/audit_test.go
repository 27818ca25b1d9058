package intercept

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// TestAudit checks the records of an intercept's life, and that one that is deleted has a last record, too.
func TestAudit(t *testing.T) {
	var lines []string
	ctx := ctrl.LoggerInto(t.Context(), funcr.NewJSON(func(line string) { lines = append(lines, line) }, funcr.Options{}))
	r := &Reconciler{Recorder: &events.FakeRecorder{}}
	q := intercepting("a", "web-1")
	q.requester = "alice"
	q.Spec.TargetDeployment, q.Spec.TargetRef = "", &sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: "web"}
	q.Status.Phase = sondev1.InterceptPending
	r.transition(ctx, q, "")
	q.Status.Phase, q.Status.Pods = sondev1.InterceptActive, []sondev1.InterceptPod{{InterceptCounters: sondev1.InterceptCounters{Matched: 3}}, {InterceptCounters: sondev1.InterceptCounters{Matched: 4}}}
	r.transition(ctx, q, sondev1.InterceptPending)
	r.remember(ctx, &observation{requests: []*request{q}})
	r.remember(ctx, &observation{})
	r.remember(ctx, &observation{})
	wants := [][]string{
		{`"audit":"RequestAdmitted"`, `"requester":"alice"`, `"target":"Deployment/web"`, `"port":8080`, `"name":"a"`},
		{`"audit":"InterceptActive"`, `"pods":2`},
		{`"audit":"InterceptEnded"`, `"phase":"Deleted"`, `"matched":7`, `"requester":"alice"`},
	}
	if len(lines) != len(wants) {
		t.Fatalf("%d records, want %d: %s", len(lines), len(wants), strings.Join(lines, "\n"))
	}
	for i, want := range wants {
		for _, part := range want {
			if !strings.Contains(lines[i], part) {
				t.Errorf("record %d is %s, want %s", i, lines[i], part)
			}
		}
	}
}
