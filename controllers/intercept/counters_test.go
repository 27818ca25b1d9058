package intercept

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// counting is the status of a Stowaway whose client is connected, and in which carriers of these Pods have counted requests for request a.
func counting(matched map[string]uint64) *tunnel.Status {
	s := &tunnel.Status{Routes: map[string]tunnel.RouteStatus{"uid-a": {Connected: true, Heartbeat: noon}}, Carriers: map[string]tunnel.CarrierStatus{}}
	for pod, n := range matched {
		s.Carriers["uid-"+pod] = tunnel.CarrierStatus{
			Connected: true, Steered: []uint16{8080}, Routes: map[string]tunnel.Counters{"uid-a": {Matched: n, BytesToClient: 2 * n}},
		}
	}
	return s
}

// after writes the status of a request that Stowaway reports so.
func after(q *request, s *tunnel.Status) {
	o := &observation{requests: []*request{q}, stowaway: up, status: s}
	statusOf(q, o, planFor(o, ceiling.Limits{}, noon), &actions{}, noon)
}

// counts returns the requests of each Pod in the status, and of those that were removed.
func counts(q *request) map[string]int64 {
	all := map[string]int64{}
	for i := range q.Status.Pods {
		all[q.Status.Pods[i].Name] = q.Status.Pods[i].Matched
	}
	if removed := q.Status.RemovedPods; removed != nil {
		all["removed"] = removed.Matched
	}
	return all
}

// TestCountersAfterTheEnd checks that an intercept that has ended keeps its Pods with what their carriers counted last.
func TestCountersAfterTheEnd(t *testing.T) {
	for phase, end := range map[sondev1.InterceptPhase]func(*request){
		sondev1.InterceptEnded: func(q *request) { q.expires = noon },
		sondev1.InterceptFailed: func(q *request) {
			q.refuse(sondev1.ReasonAccessRevoked, "no right")
			q.pods = nil // they are not read
		},
	} {
		q := intercepting("a", "web-1", "web-2")
		after(q, counting(map[string]uint64{"web-1": 3, "web-2": 4}))
		if !q.Status.Pods[0].Active {
			t.Fatalf("%s: not active before: %+v", phase, q.Status.Pods)
		}
		end(q)
		after(q, counting(map[string]uint64{"web-1": 5, "web-2": 4}))
		if diff := cmp.Diff(map[string]int64{"web-1": 5, "web-2": 4}, counts(q)); diff != "" || q.Status.Phase != phase {
			t.Errorf("phase %s, want %s, counts (-want +got):\n%s", q.Status.Phase, phase, diff)
		}
		for i := range q.Status.Pods {
			if e := &q.Status.Pods[i]; e.Active || e.UID == "" {
				t.Errorf("%s: %+v", phase, e)
			}
		}
	}
}

// TestCountersOfRemovedPods checks that totals do not fall when Pods go, or when Stowaway restarts.
func TestCountersOfRemovedPods(t *testing.T) {
	q := intercepting("a", "web-1", "web-2", "web-3")
	all := q.pods
	for _, step := range []struct {
		name    string
		change  func()
		status  *tunnel.Status
		matched map[string]int64
	}{
		{"three Pods", nil, counting(map[string]uint64{"web-1": 1, "web-2": 2, "web-3": 3}), map[string]int64{"web-1": 1, "web-2": 2, "web-3": 3}},
		{"one goes, after another request", func() { q.pods = all[1:] }, counting(map[string]uint64{"web-1": 10, "web-2": 2, "web-3": 3}), map[string]int64{"web-2": 2, "web-3": 3, "removed": 10}},
		{"the same again", nil, counting(map[string]uint64{"web-2": 2, "web-3": 3}), map[string]int64{"web-2": 2, "web-3": 3, "removed": 10}},
		{"without an answer of Stowaway", nil, nil, map[string]int64{"web-2": 2, "web-3": 3, "removed": 10}},
		{"Stowaway is new", nil, counting(nil), map[string]int64{"web-2": 2, "web-3": 3, "removed": 10}},
		{"another goes", func() { q.pods = all[2:] }, counting(map[string]uint64{"web-3": 4}), map[string]int64{"web-3": 4, "removed": 12}},
		{"the Pods cannot be read", func() { q.readError, q.pods = "no answer", nil }, counting(map[string]uint64{"web-3": 4}), map[string]int64{"web-3": 4, "removed": 12}},
		{"they still cannot, and its carrier was removed", nil, counting(nil), map[string]int64{"web-3": 4, "removed": 12}},
		{"they can again", func() { q.readError, q.pods = "", all[2:] }, counting(map[string]uint64{"web-3": 4}), map[string]int64{"web-3": 4, "removed": 12}},
		{"the end", func() { q.expires = noon }, nil, map[string]int64{"web-3": 4, "removed": 12}},
	} {
		if step.change != nil {
			step.change()
		}
		after(q, step.status)
		if diff := cmp.Diff(step.matched, counts(q)); diff != "" {
			t.Errorf("%s: counts (-want +got):\n%s", step.name, diff)
		}
	}
	if got := q.Status.RemovedPods.BytesToClient; got != 2*10+2*2 {
		t.Errorf("%d bytes of removed Pods, want 24", got)
	}
}

// TestSum checks that what a carrier that was taken over reports makes no sum negative.
func TestSum(t *testing.T) {
	huge := countersOf(tunnel.Counters{Matched: math.MaxUint64})
	if got := sum(&huge, nil, &huge, &huge, &sondev1.InterceptCounters{Failed: 1}); got.Matched != math.MaxInt64 || got.Failed != 1 {
		t.Errorf("%+v", got)
	}
}

// TestHeartbeat checks that a client did not answer before its InterceptRequest existed.
func TestHeartbeat(t *testing.T) {
	created := noon.Add(11 * time.Second)
	for answered, want := range map[time.Duration]time.Time{20 * time.Second: created, 59 * time.Second: created, 60 * time.Second: noon.Add(time.Minute), 75 * time.Second: noon.Add(time.Minute)} {
		q := intercepting("a", "web-1")
		q.CreationTimestamp = metav1.NewTime(created)
		s := counting(nil)
		s.Routes["uid-a"] = tunnel.RouteStatus{Connected: true, Heartbeat: noon.Add(answered)}
		after(q, s)
		if got := q.Status.Heartbeat; got == nil || !got.Time.Equal(want) {
			t.Errorf("answered after %s: heartbeat %s, want %s", answered, got, want)
		}
	}
}

// TestAnotherRequestSteers checks that a request is not Intercepted because another one of the same port is.
func TestAnotherRequestSteers(t *testing.T) {
	const grace = 10 * time.Second // of intercepting
	q := intercepting("b", "web-1")
	for _, step := range []struct {
		name   string
		client tunnel.RouteStatus
		at     time.Duration
		reason string
		active bool
	}{
		{"the client never came", tunnel.RouteStatus{}, 0, sondev1.ReasonClientAwaited, false},
		{"it is connected", tunnel.RouteStatus{Connected: true, Heartbeat: noon}, time.Second, sondev1.ReasonIntercepted, true},
		{"it has just gone", tunnel.RouteStatus{Heartbeat: noon}, grace, sondev1.ReasonIntercepted, true},
		{"its gracePeriod is over", tunnel.RouteStatus{Heartbeat: noon}, grace + lossMargin, sondev1.ReasonClientLost, false},
		{"Stowaway gives no answer", tunnel.RouteStatus{}, time.Minute, sondev1.ReasonCarriersStarting, false},
		{"it answers again, without the client", tunnel.RouteStatus{Heartbeat: noon}, time.Minute + time.Second, sondev1.ReasonClientLost, false},
		{"it is back", tunnel.RouteStatus{Connected: true, Heartbeat: noon}, 2 * time.Minute, sondev1.ReasonIntercepted, true},
		{"it came and went between two passes", tunnel.RouteStatus{Heartbeat: noon.Add(3 * time.Minute)}, 3*time.Minute + time.Second, sondev1.ReasonIntercepted, true},
	} {
		s := counting(map[string]uint64{"web-1": 0}) // request a steers the port
		s.Routes["uid-b"] = step.client
		now, carriers := noon.Add(step.at), map[types.UID]*carrier{"uid-web-1": carrierOf("web-1", "0", time.Minute, "")}
		o := &observation{requests: []*request{q}, stowaway: up, carriers: carriers, status: s}
		if step.reason == sondev1.ReasonCarriersStarting {
			o.status = nil
		}
		statusOf(q, o, planFor(o, ceiling.Limits{}, now), &actions{}, now)
		c := apimeta.FindStatusCondition(q.Status.Conditions, sondev1.ConditionIntercepted)
		if q.Status.Pods[0].Active != step.active || c.Reason != step.reason {
			t.Errorf("%s: active %t with reason %s, want %t with %s", step.name, q.Status.Pods[0].Active, c.Reason, step.active, step.reason)
		}
	}
}
