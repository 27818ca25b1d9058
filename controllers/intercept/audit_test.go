package intercept

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/memapi"
)

// TestAudit checks the records and Events of an intercept's life, and that one that is deleted has a last record, too, with what carriers
// counted last.
func TestAudit(t *testing.T) {
	var lines []string
	ctx := ctrl.LoggerInto(t.Context(), funcr.NewJSON(func(line string) { lines = append(lines, line) }, funcr.Options{}))
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Recorder: recorder}
	q := intercepting("a", "web-1")
	q.requester = "alice"
	q.Spec.TargetDeployment, q.Spec.TargetRef = "", &sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: "web"}
	q.Status.Phase = sondev1.InterceptPending
	r.transition(ctx, q)
	q.Status.Phase, q.Status.Heartbeat = sondev1.InterceptActive, new(metav1.NewTime(noon))
	q.Status.Pods = []sondev1.InterceptPod{{UID: "uid-web-1", InterceptCounters: sondev1.InterceptCounters{Matched: 3}}, {UID: "uid-web-2", InterceptCounters: sondev1.InterceptCounters{Matched: 4}}}
	q.Status.RemovedPods = &sondev1.InterceptCounters{Matched: 100}
	r.transition(ctx, q)
	r.remember(ctx, &observation{requests: []*request{q}})
	r.remember(ctx, &observation{status: counting(map[string]uint64{"web-2": 5})})
	r.remember(ctx, &observation{})
	wants := [][]string{
		{`"audit":"RequestAdmitted"`, `"requester":"alice"`, `"target":"Deployment/web"`, `"port":8080`, `"name":"a"`},
		{`"audit":"InterceptActive"`, `"pods":2`},
		{`"audit":"InterceptEnded"`, `"phase":"Deleted"`, `"matched":108`, `"requester":"alice"`},
	}
	for _, want := range []string{
		"Normal Active intercept of port 8080 of Deployment shop/web by alice: the developer's machine answers",
		"Normal Ended intercept of port 8080 of Deployment shop/web by alice: ended, because the InterceptRequest was deleted",
	} {
		select {
		case got := <-recorder.Events:
			if got != want {
				t.Errorf("Event %q, want %q", got, want)
			}
		default:
			t.Errorf("no Event %q", want)
		}
	}
	if len(recorder.Events) > 0 {
		t.Errorf("%d Events too many, the first is %q", len(recorder.Events), <-recorder.Events)
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

// TestEventsAreBounded checks the Event of a request with long names, and that one whose client never connected ends without one.
func TestEventsAreBounded(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Recorder: recorder}
	q := intercepting("a", "web-1")
	q.requester = strings.Repeat("long\nname ", 1000)
	r.event(q, "Warning", "Failed", strings.Repeat("x", 5000))
	got := <-recorder.Events
	if n := len(got) - len("Warning Failed "); n > 1024 || strings.Contains(got, "\n") || !strings.HasSuffix(got, "...") || !strings.Contains(got, "xxx") {
		t.Errorf("%d bytes: %s", n, got)
	}
	r.remember(t.Context(), &observation{requests: []*request{q}})
	r.remember(t.Context(), &observation{})
	if len(recorder.Events) > 0 {
		t.Errorf("Event %q", <-recorder.Events)
	}
}

// TestAuditOfAStatusWithoutAnAnswer: a phase that was written has one record, whether the API server answered or not.
func TestAuditOfAStatusWithoutAnAnswer(t *testing.T) {
	lost := memapi.Faults[slices.IndexFunc(memapi.Faults, func(f memapi.Fault) bool { return f.Name == "timeout, done" })]
	s := settled(t)
	var lines []string
	ctx := ctrl.LoggerInto(t.Context(), funcr.NewJSON(func(line string) { lines = append(lines, line) }, funcr.Options{}))
	answers := false
	passes := func() {
		for range 3 {
			s.catchUp(s.clock.Now().Add(time.Second))
			if _, err := s.leader.r.Reconcile(ctx, ctrl.Request{}); err != nil {
				t.Fatal(err)
			}
			answers = true
			s.clock.Step(time.Second)
		}
	}
	s.leader.requests.Choose = func(verb string, key memapi.Key, _ bool) memapi.Fault {
		if key.Kind == sondev1.InterceptKind && strings.Contains(verb, "patch") && !answers {
			return lost
		}
		return memapi.Fault{}
	}
	s.end.lost = true
	passes()
	s.end.lost, answers = false, false
	passes()
	answers = false
	s.clock.Step(8 * time.Hour)
	passes()
	var got []string
	for _, line := range lines {
		if _, record, found := strings.Cut(line, `"audit":"`); found {
			name, _, _ := strings.Cut(record, `"`)
			got = append(got, name)
		}
	}
	if want := []string{"InterceptActive", "InterceptEnded"}; !slices.Equal(got, want) {
		t.Errorf("records %q, want %q", got, want)
	}
}
