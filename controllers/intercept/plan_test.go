package intercept

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/handover"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// intercepting is a request that was created a minute ago, for Pods with these names.
func intercepting(name string, pods ...string) *request {
	q := &request{
		InterceptRequest: &sondev1.InterceptRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute))},
			Spec:       sondev1.InterceptRequestSpec{TargetDeployment: "web", TargetContainerPort: 8080, GracePeriod: "10s", ExpiresAfter: "8h"},
		},
		expires: noon.Add(time.Hour), reading: reading{at: noon, targetFound: true},
	}
	for _, p := range pods {
		q.pods = append(q.pods, podNamed(p, nil))
	}
	return q
}

func podNamed(name string, change func(*corev1.Pod)) *slim.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: "node-a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if change != nil {
		change(pod)
	}
	return target.SlimPod(pod)
}

// carrierOf is the Job of an attempt on a Pod, created this long ago. ended is its condition, if any.
func carrierOf(pod string, attempt string, age time.Duration, ended batchv1.JobConditionType) *carrier {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: "carrier-" + pod + "-0-" + attempt, Namespace: "sonde-system", CreationTimestamp: metav1.NewTime(noon.Add(-age)),
		Labels:      map[string]string{sondev1.LabelStowaway: agentjob.StowawayID(up.key, up.address)},
		Annotations: map[string]string{sondev1.AnnotationCarrierKey: "key"},
	}}
	if ended != "" {
		job.Status.Conditions = []batchv1.JobCondition{{Type: ended, Status: corev1.ConditionTrue}}
	}
	return &carrier{job: target.SlimJob(job), hasSecret: true}
}

// nodeA is read.
var nodeA = map[string]nodeReading{"node-a": {exists: true, at: noon}}

// up is a Stowaway that has everything.
var up = stowawayObjects{deployment: true, service: true, secret: true, namespace: "sonde-system", address: "10.0.0.1", key: "stowaway", managerKey: "manager"}

func TestPlan(t *testing.T) {
	// another is a Stowaway whose Secret was made anew.
	another := up
	another.key = "another"
	type want struct {
		stowaway, removeStowaway bool
		create, remove           []string
		waiting                  []string
		routes                   map[string][]string
		again                    time.Duration
	}
	for name, tc := range map[string]struct {
		requests []*request
		carriers map[types.UID]*carrier
		stowaway stowawayObjects
		secrets  map[string]types.UID
		limits   ceiling.Limits
		want     want
	}{
		"nothing": {},
		"the first request": {
			requests: []*request{intercepting("a", "web-1")},
			want:     want{stowaway: true, routes: map[string][]string{"uid-a": {"uid-web-1"}}, again: pollInterval},
		},
		"Stowaway exists": {
			requests: []*request{intercepting("a", "web-1", "web-2")}, stowaway: up,
			want: want{stowaway: true, create: []string{"web-1", "web-2"}, routes: map[string][]string{"uid-a": {"uid-web-1", "uid-web-2"}}, again: pollInterval},
		},
		"two requests share a carrier": {
			requests: []*request{intercepting("a", "web-1"), intercepting("b", "web-1")}, stowaway: up,
			carriers: map[types.UID]*carrier{"uid-web-1": carrierOf("web-1", "0", time.Minute, "")},
			want:     want{stowaway: true, routes: map[string][]string{"uid-a": {"uid-web-1"}, "uid-b": {"uid-web-1"}}, again: pollInterval},
		},
		"the last request has gone": {
			stowaway: up, carriers: map[types.UID]*carrier{"uid-web-1": carrierOf("web-1", "0", time.Minute, "")},
			want: want{removeStowaway: true, remove: []string{"carrier-web-1-0-0"}},
		},
		"a Pod has gone": {
			requests: []*request{intercepting("a", "web-2")}, stowaway: up,
			carriers: map[types.UID]*carrier{"uid-web-1": carrierOf("web-1", "0", time.Minute, ""), "uid-web-2": carrierOf("web-2", "0", time.Minute, "")},
			want:     want{stowaway: true, remove: []string{"carrier-web-1-0-0"}, routes: map[string][]string{"uid-a": {"uid-web-2"}}, again: pollInterval},
		},
		"a carrier has failed a moment ago": {
			requests: []*request{intercepting("a", "web-1")}, stowaway: up,
			carriers: map[types.UID]*carrier{"uid-web-1": carrierOf("web-1", "0", time.Second, batchv1.JobFailed)},
			want:     want{stowaway: true, routes: map[string][]string{"uid-a": {"uid-web-1"}}, again: pollInterval},
		},
		"a carrier has failed": {
			requests: []*request{intercepting("a", "web-1")}, stowaway: up,
			carriers: map[types.UID]*carrier{"uid-web-1": carrierOf("web-1", "3", time.Minute, batchv1.JobFailed)},
			want: want{
				stowaway: true, remove: []string{"carrier-web-1-0-3"},
				routes: map[string][]string{"uid-a": {"uid-web-1"}}, again: pollInterval,
			},
		},
		"expired": {
			requests: []*request{func() *request { q := intercepting("a", "web-1"); q.expires = noon; return q }()}, stowaway: up,
			carriers: map[types.UID]*carrier{"uid-web-1": carrierOf("web-1", "0", time.Minute, "")},
			want:     want{removeStowaway: true, remove: []string{"carrier-web-1-0-0"}},
		},
		"not allowed": {
			requests: []*request{func() *request { q := intercepting("a", "web-1"); q.refuse("AccessRevoked", "no"); return q }()},
		},
		"expires soon": {
			requests: []*request{func() *request {
				q := intercepting("a")
				q.expires = noon.Add(300 * time.Millisecond)
				return q
			}()},
			want: want{stowaway: true, routes: map[string][]string{"uid-a": nil}, again: 300 * time.Millisecond},
		},
		"hostNetwork": {
			requests: []*request{func() *request {
				q := intercepting("a", "web-1")
				q.pods = append(q.pods, podNamed("web-2", func(p *corev1.Pod) { p.Spec.HostNetwork = true }))
				return q
			}()}, stowaway: up,
			want: want{stowaway: true, create: []string{"web-1"}, routes: map[string][]string{"uid-a": {"uid-web-1"}}, again: pollInterval},
		},
		"carriers of a Stowaway that had another key": {
			requests: []*request{intercepting("a", "web-1")}, stowaway: another,
			carriers: map[types.UID]*carrier{"uid-web-1": carrierOf("web-1", "0", time.Minute, "")},
			want:     want{stowaway: true, remove: []string{"carrier-web-1-0-0"}, routes: map[string][]string{"uid-a": {"uid-web-1"}}, again: pollInterval},
		},
		"Secrets without Jobs": {
			requests: []*request{intercepting("a", "web-1")}, stowaway: up, secrets: map[string]types.UID{"of-web-1": "uid-web-1", "of-web-9": "uid-web-9"},
			want: want{stowaway: true, create: []string{"web-1"}, remove: []string{"of-web-9"}, routes: map[string][]string{"uid-a": {"uid-web-1"}}, again: pollInterval},
		},
		"more Pods than a request may have: the one with a carrier keeps it": {
			requests: []*request{intercepting("a", "web-1", "web-2", "web-3")}, stowaway: up, limits: ceiling.Limits{PodsPerCapture: 2},
			carriers: map[types.UID]*carrier{"uid-web-3": carrierOf("web-3", "0", time.Minute, "")},
			want: want{
				stowaway: true, create: []string{"web-1"}, waiting: []string{"a uid-web-2"},
				routes: map[string][]string{"uid-a": {"uid-web-3", "uid-web-1"}}, again: pollInterval,
			},
		},
		"more carriers than a namespace may have on a node: another request shares the Pod": {
			requests: []*request{intercepting("a", "web-1", "web-2"), intercepting("b", "web-1")}, stowaway: up, limits: ceiling.Limits{ProbesPerNode: 2},
			want: want{
				stowaway: true, create: []string{"web-1"}, waiting: []string{"a uid-web-2"},
				routes: map[string][]string{"uid-a": {"uid-web-1"}, "uid-b": {"uid-web-1"}}, again: pollInterval,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := planFor(&observation{requests: tc.requests, carriers: tc.carriers, secrets: tc.secrets, stowaway: tc.stowaway, nodes: nodeA}, tc.limits, noon)
			got := want{stowaway: p.stowaway, removeStowaway: p.removeStowaway, again: p.again}
			for _, c := range p.create {
				got.create = append(got.create, c.Name)
			}
			for _, c := range p.remove {
				got.remove = append(got.remove, c.job.GetName())
			}
			got.remove = append(got.remove, p.removeSecrets...)
			for _, q := range tc.requests {
				for uid := range p.waiting[q.UID] {
					got.waiting = append(got.waiting, q.Name+" "+string(uid))
				}
			}
			slices.Sort(got.waiting)
			for _, r := range p.routes {
				if got.routes == nil {
					got.routes = map[string][]string{}
				}
				got.routes[r.ID] = r.Pods
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStateIsStable checks that an unchanged world gives an unchanged generation, and a changed one another.
func TestStateIsStable(t *testing.T) {
	state := func(pods ...string) string {
		p := planFor(&observation{requests: []*request{intercepting("a", pods...)}, stowaway: up}, ceiling.Limits{}, noon)
		return p.state([]tunnel.Carrier{{Pod: "uid-web-1", Key: "k"}}).Generation
	}
	if a, b := state("web-1"), state("web-1"); a != b || a == "" {
		t.Errorf("generations %q and %q", a, b)
	}
	if state("web-1") == state("web-1", "web-2") {
		t.Error("another Pod changes nothing")
	}
}

func TestStatus(t *testing.T) {
	live := func(connected bool, steered ...uint16) *tunnel.Status {
		return &tunnel.Status{
			Routes: map[string]tunnel.RouteStatus{"uid-a": {Connected: connected, Heartbeat: noon}},
			Carriers: map[string]tunnel.CarrierStatus{"uid-web-1": {
				Connected: true, Steered: steered, Routes: map[string]tunnel.Counters{"uid-a": {Connections: 5, Matched: 3, Passed: 2}},
			}},
		}
	}
	deaf := func(connected bool) *tunnel.Status {
		s := live(connected)
		s.Carriers["uid-web-1"] = tunnel.CarrierStatus{Connected: true, Unserved: []uint16{80, 8080}}
		return s
	}
	running := map[types.UID]*carrier{"uid-web-1": carrierOf("web-1", "0", time.Minute, "")}
	for name, tc := range map[string]struct {
		before  sondev1.InterceptPhase
		change  func(*request)
		status  *tunnel.Status
		phase   sondev1.InterceptPhase
		reasons map[string]string
		// message of the Pod, which the condition Intercepted has, too.
		message string
	}{
		"Stowaway starts": {phase: sondev1.InterceptPending, reasons: map[string]string{"StowawayReady": "StowawayStarting", "ClientConnected": "StowawayStarting", "Intercepted": "CarriersStarting"}},
		"no client yet": {
			status: &tunnel.Status{}, phase: sondev1.InterceptPending,
			reasons: map[string]string{"StowawayReady": "StowawayReady", "ClientConnected": "ClientAwaited", "Intercepted": "CarriersStarting"},
		},
		"active": {
			status: live(true, 8080), phase: sondev1.InterceptActive,
			reasons: map[string]string{"Admitted": "Admitted", "ClientConnected": "ClientConnected", "Intercepted": "Intercepted"},
		},
		"Stowaway does not know the route": {
			status:  &tunnel.Status{Carriers: live(true, 8080).Carriers},
			phase:   sondev1.InterceptPending,
			reasons: map[string]string{"ClientConnected": "ClientAwaited", "Intercepted": "CarriersStarting"},
		},
		"nothing listens": {
			status: deaf(true), phase: sondev1.InterceptPending, reasons: map[string]string{"Intercepted": "NothingListens"},
			message: "nothing listens on port 8080 in the Pod, which may differ from its Service's port",
		},
		"nothing listened, and the client is gone": {
			status: deaf(false), phase: sondev1.InterceptPending, reasons: map[string]string{"Intercepted": "ClientLost"},
		},
		"another port": {status: live(true, 9090), phase: sondev1.InterceptPending, reasons: map[string]string{"Intercepted": "CarriersStarting"}},
		"lost": {
			before: sondev1.InterceptActive, status: live(false, 8080), phase: sondev1.InterceptLost,
			reasons: map[string]string{"ClientConnected": "ClientLost"},
		},
		"still lost, and given back": {
			before: sondev1.InterceptLost, status: live(false), phase: sondev1.InterceptLost,
			reasons: map[string]string{"ClientConnected": "ClientLost", "Intercepted": "ClientLost"},
			message: "the app answers until the developer's machine returns",
		},
		"lost, and Stowaway is new": {
			before: sondev1.InterceptLost, change: func(q *request) { q.Status.Heartbeat = new(metav1.NewTime(noon)) },
			status: &tunnel.Status{Routes: map[string]tunnel.RouteStatus{"uid-a": {}}, Carriers: live(false).Carriers}, phase: sondev1.InterceptLost,
			reasons: map[string]string{"ClientConnected": "ClientLost", "Intercepted": "ClientLost"},
		},
		"the carrier is first": {
			status: &tunnel.Status{Routes: map[string]tunnel.RouteStatus{"uid-a": {}}, Carriers: live(false).Carriers}, phase: sondev1.InterceptPending,
			reasons: map[string]string{"ClientConnected": "ClientAwaited", "Intercepted": "ClientAwaited"},
			message: "the carrier waits for the developer's machine",
		},
		"lost, and the carrier starts": {
			before: sondev1.InterceptLost, status: &tunnel.Status{Routes: live(false).Routes}, phase: sondev1.InterceptLost,
			reasons: map[string]string{"Intercepted": "CarriersStarting"}, message: "the carrier's Pod is being created",
		},
		"back": {before: sondev1.InterceptLost, status: live(true, 8080), phase: sondev1.InterceptActive},
		"no Pods": {
			change: func(q *request) { q.pods = nil }, status: live(true), phase: sondev1.InterceptPending,
			reasons: map[string]string{"Intercepted": "NoPods"},
		},
		"no target": {
			change: func(q *request) { q.pods, q.targetFound = nil, false }, status: live(true), phase: sondev1.InterceptPending,
			reasons: map[string]string{"Intercepted": "TargetNotFound"},
		},
		"expired": {
			before: sondev1.InterceptActive, change: func(q *request) { q.expires = noon }, status: live(true, 8080), phase: sondev1.InterceptEnded,
			reasons: map[string]string{"Intercepted": "Expired", "Admitted": "Admitted"},
		},
		"not checked again": {
			before: sondev1.InterceptActive, change: func(q *request) { q.readError = "no answer" }, status: live(true, 8080), phase: sondev1.InterceptActive,
			reasons: map[string]string{"Admitted": "NotChecked", "Intercepted": "Intercepted"},
		},
		"right withdrawn": {
			before: sondev1.InterceptActive, change: func(q *request) { q.refuse("AccessRevoked", "no right") }, status: live(true, 8080), phase: sondev1.InterceptFailed,
			reasons: map[string]string{"Admitted": "AccessRevoked", "Intercepted": "AccessRevoked"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := intercepting("a", "web-1")
			q.Status.Phase = tc.before
			if tc.change != nil {
				tc.change(q)
			}
			o := &observation{requests: []*request{q}, carriers: running, stowaway: up, status: tc.status}
			p := planFor(o, ceiling.Limits{}, noon)
			statusOf(q, o, p, &actions{}, noon)
			if q.Status.Phase != tc.phase || q.Status.Active != (tc.phase == sondev1.InterceptActive) {
				t.Errorf("phase %s, active %t, want %s", q.Status.Phase, q.Status.Active, tc.phase)
			}
			for kind, want := range tc.reasons {
				if c := apimeta.FindStatusCondition(q.Status.Conditions, kind); c == nil || c.Reason != want || c.Message == "" {
					t.Errorf("condition %s is %+v, want reason %s", kind, c, want)
				}
			}
			if tc.message != "" {
				c := apimeta.FindStatusCondition(q.Status.Conditions, sondev1.ConditionIntercepted)
				if want := "0 of 1 Pods are intercepted; Pod web-1: " + tc.message; c.Message != want || q.Status.Pods[0].Message != tc.message {
					t.Errorf("messages %q and %q, want %q", c.Message, q.Status.Pods[0].Message, want)
				}
			}
			again := q.DeepCopy()
			statusOf(q, o, p, &actions{}, noon.Add(time.Second))
			if compare(&again.Status, &q.Status) != nothing {
				t.Errorf("a second pass over an unchanged world writes (-before +after):\n%s", cmp.Diff(again.Status, q.Status))
			}
		})
	}
}

// TestWhyItWaits checks what the status says of a carrier that does not intercept.
func TestWhyItWaits(t *testing.T) {
	outcome, err := handover.Outcome{Reason: handover.ReasonFailed, Message: "this kernel wants NET_ADMIN"}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	ended := func(message string) corev1.PodStatus {
		end := func(name, message string) corev1.ContainerStatus {
			return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}}
		}
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{end("carrier", "the opener has gone"), end("opener", message)}}
	}
	carrierGone, err := handover.Outcome{Reason: handover.ReasonCarrierGone, Message: "no carrier"}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for want, status := range map[string]corev1.PodStatus{
		"opener has ended: this kernel wants NET_ADMIN": ended(string(outcome)),
		"carrier has ended: the opener has gone":        ended(string(carrierGone)),
		"OutOfcpu: no CPU is left":                      {Reason: "OutOfcpu", Message: "no CPU is left"},
		"the carrier is starting":                       {},
	} {
		c := carrierOf("web-1", "0", time.Minute, "")
		c.agent = target.SlimAgent(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{sondev1.LabelUID: "u"}}, Status: status})
		if got := c.waiting(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestPodOfAnotherRequest checks that a request does not count a Pod that waits for a limit, while another request intercepts the Pod's port.
func TestPodOfAnotherRequest(t *testing.T) {
	first, other := intercepting("a", "web-1", "web-2"), intercepting("b", "web-2")
	steered := tunnel.CarrierStatus{Connected: true, Steered: []uint16{8080}}
	client := tunnel.RouteStatus{Connected: true, Heartbeat: noon}
	o := &observation{
		requests: []*request{first, other}, stowaway: up,
		carriers: map[types.UID]*carrier{"uid-web-1": carrierOf("web-1", "0", time.Minute, ""), "uid-web-2": carrierOf("web-2", "0", time.Minute, "")},
		status: &tunnel.Status{
			Routes:   map[string]tunnel.RouteStatus{"uid-a": client, "uid-b": client},
			Carriers: map[string]tunnel.CarrierStatus{"uid-web-1": steered, "uid-web-2": steered},
		},
	}
	p := planFor(o, ceiling.Limits{PodsPerCapture: 1}, noon)
	for q, want := range map[*request]string{first: "true false", other: "true"} {
		statusOf(q, o, p, &actions{}, noon)
		var active []string
		for _, pod := range q.Status.Pods {
			active = append(active, fmt.Sprint(pod.Active))
		}
		if got := strings.Join(active, " "); got != want {
			t.Errorf("request %s: its Pods are active: %s, want %s", q.UID, got, want)
		}
	}
	if got := first.Status.Pods[1].Message; !strings.HasPrefix(got, "waiting: ") {
		t.Errorf("message %q", got)
	}
}

// TestPodsThatTheStatusDoesNotList checks that the condition counts all Pods of the target, and not only those that the status lists.
func TestPodsThatTheStatusDoesNotList(t *testing.T) {
	for active, want := range map[int]metav1.ConditionStatus{maxPods: metav1.ConditionFalse, maxPods + 1: metav1.ConditionTrue} {
		q := intercepting("a")
		status := &tunnel.Status{Routes: map[string]tunnel.RouteStatus{"uid-a": {Connected: true, Heartbeat: noon}}, Carriers: map[string]tunnel.CarrierStatus{}}
		for n := range maxPods + 1 {
			pod := podNamed(fmt.Sprintf("web-%03d", n), nil)
			q.pods = append(q.pods, pod)
			status.Carriers[string(pod.GetUID())] = tunnel.CarrierStatus{Connected: n < active, Steered: []uint16{8080}}
		}
		o := &observation{requests: []*request{q}, stowaway: up, status: status}
		statusOf(q, o, planFor(o, ceiling.Limits{}, noon), &actions{}, noon)
		c := apimeta.FindStatusCondition(q.Status.Conditions, sondev1.ConditionIntercepted)
		if c.Status != want || c.Message != fmt.Sprintf("%d of 501 Pods are intercepted", active) {
			t.Errorf("condition %+v, want %s with %d Pods", c, want, active)
		}
	}
}

// TestExcludedPodsBesideAnActiveOne checks that a request whose only Pod that it intercepts is not listed is not called impossible.
func TestExcludedPodsBesideAnActiveOne(t *testing.T) {
	q := intercepting("a")
	for n := range maxPods {
		q.pods = append(q.pods, podNamed(fmt.Sprintf("web-%03d", n), func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }))
	}
	q.pods = append(q.pods, podNamed("web-other", nil))
	o := &observation{requests: []*request{q}, stowaway: up, status: &tunnel.Status{
		Routes:   map[string]tunnel.RouteStatus{"uid-a": {Connected: true, Heartbeat: noon}},
		Carriers: map[string]tunnel.CarrierStatus{"uid-web-other": {Connected: true, Steered: []uint16{8080}}},
	}}
	statusOf(q, o, planFor(o, ceiling.Limits{}, noon), &actions{}, noon)
	c := apimeta.FindStatusCondition(q.Status.Conditions, sondev1.ConditionIntercepted)
	if c.Reason != sondev1.ReasonCarriersStarting || !strings.HasPrefix(c.Message, "1 of 501 Pods") {
		t.Errorf("condition %+v", c)
	}
}

// TestCarrierThatGivesTheAppItsConnections checks that the status does not call a carrier starting that runs without a client, or is full.
func TestCarrierThatGivesTheAppItsConnections(t *testing.T) {
	c := carrierOf("web-1", "0", time.Minute, "")
	c.agent = podNamed("carrier", nil)
	for _, tc := range []struct {
		connected bool // the carrier
		client    bool
		want      string
	}{
		{false, false, "starting"},
		{true, false, "until the developer's machine returns"},
		{true, true, "no room for more"},
	} {
		q := intercepting("a", "web-1")
		o := &observation{requests: []*request{q}, stowaway: up, carriers: map[types.UID]*carrier{"uid-web-1": c}, status: &tunnel.Status{
			Routes:   map[string]tunnel.RouteStatus{"uid-a": {Connected: tc.client, Heartbeat: noon}},
			Carriers: map[string]tunnel.CarrierStatus{"uid-web-1": {Connected: tc.connected}},
		}}
		statusOf(q, o, planFor(o, ceiling.Limits{}, noon), &actions{}, noon)
		if e := q.Status.Pods[0]; e.Active || !strings.Contains(e.Message, tc.want) {
			t.Errorf("active %t, message %q, want %q", e.Active, e.Message, tc.want)
		}
	}
}

// TestLastWordsOfACarrier checks that the status has no control characters of a carrier that was taken over.
func TestLastWordsOfACarrier(t *testing.T) {
	c := carrierOf("web-1", "0", time.Minute, "")
	c.agent = target.SlimAgent(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{sondev1.LabelUID: "u"}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "carrier", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "\x1b[2Jall\r\nis well"}},
		}}},
	})
	q := intercepting("a", "web-1")
	o := &observation{requests: []*request{q}, carriers: map[types.UID]*carrier{"uid-web-1": c}, stowaway: up}
	statusOf(q, o, planFor(o, ceiling.Limits{}, noon), &actions{}, noon)
	if got, want := q.Status.Pods[0].Message, "carrier has ended:  [2Jall  is well"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

// TestNothingListensInOnePod: the condition is about the Pod in which nothing listens, although another one comes first.
func TestNothingListensInOnePod(t *testing.T) {
	q := intercepting("a", "web-1", "web-2")
	status := &tunnel.Status{
		Routes:   map[string]tunnel.RouteStatus{"uid-a": {Connected: true, Heartbeat: noon}},
		Carriers: map[string]tunnel.CarrierStatus{"uid-web-2": {Connected: true, Unserved: []uint16{8080}}},
	}
	carriers := map[types.UID]*carrier{"uid-web-1": carrierOf("web-1", "0", time.Minute, ""), "uid-web-2": carrierOf("web-2", "0", time.Minute, "")}
	o := &observation{requests: []*request{q}, carriers: carriers, stowaway: up, status: status}
	statusOf(q, o, planFor(o, ceiling.Limits{}, noon), &actions{}, noon)
	c := apimeta.FindStatusCondition(q.Status.Conditions, sondev1.ConditionIntercepted)
	if want := "0 of 2 Pods are intercepted; Pod web-2: nothing listens on port 8080"; c.Reason != sondev1.ReasonNothingListens || !strings.HasPrefix(c.Message, want) {
		t.Errorf("condition %+v, want the message to begin with %q", c, want)
	}
}

// TestManyPodsThatWait checks that a plan and the statuses take little memory for Pods that the statuses do not list.
func TestManyPodsThatWait(t *testing.T) {
	var pods []*slim.Pod
	for i := range 5000 {
		pods = append(pods, podNamed(fmt.Sprintf("web-7c9f8d6b5-%05d", i), nil))
	}
	o := &observation{stowaway: up}
	for i := range 50 {
		q := intercepting(fmt.Sprint("a", i))
		q.pods = pods
		o.requests = append(o.requests, q)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p := planFor(o, ceiling.Limits{PodsPerCapture: 200, ProbesPerNode: 40}, noon)
	runtime.GC()
	runtime.ReadMemStats(&after)
	kept := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) >> 10
	t.Logf("the plan keeps %d KiB", kept)
	if kept > 4<<10 {
		t.Errorf("the plan keeps %d KiB for 50 requests of 5,000 Pods", kept)
	}
	for _, q := range o.requests {
		if n := len(p.waiting[q.UID]); n == 0 || n > maxOthers {
			t.Errorf("%s: texts of %d Pods that wait, and the status lists %d", q.Name, n, maxOthers)
		}
	}
	q := o.requests[0]
	statusOf(q, o, p, &actions{}, noon)
	want := "waiting: namespace shop has 20 carriers on node node-a, half of what the node may have (--max-probes-per-node)"
	if got := q.Status.Pods; len(got) != 20+maxOthers || got[20+maxOthers-1].Message != want || q.Status.PodsOmitted != 4980-maxOthers {
		t.Errorf("%d entries of %d Pods, the last says %q, want 20 with a carrier, and %d that say %q",
			len(got), len(got)+int(q.Status.PodsOmitted), got[len(got)-1].Message, maxOthers, want)
	}
	c := apimeta.FindStatusCondition(q.Status.Conditions, sondev1.ConditionIntercepted)
	if want := "0 of 5000 Pods are intercepted, 4980 wait; Pod web-7c9f8d6b5-00020: " + want; c.Reason != sondev1.ReasonCarriersStarting || c.Message != want {
		t.Errorf("condition %+v, want the message %q", c, want)
	}
}

// TestPodsThatAreNotListed checks which Pods a status leaves out, what the condition says of them, and that their counts are not lost.
func TestPodsThatAreNotListed(t *testing.T) {
	q := intercepting("a", "web-1")
	after(q, counting(map[string]uint64{"web-1": 3}))
	for n := range 30 {
		q.pods = append(q.pods, podNamed(fmt.Sprintf("host-%02d", n), func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }))
		q.pods = append(q.pods, podNamed(fmt.Sprintf("lost-%02d", n), func(pod *corev1.Pod) { pod.Spec.NodeName = strings.Repeat("n", 253) }))
	}
	slices.SortFunc(q.pods, func(a, b *slim.Pod) int { return strings.Compare(a.GetName(), b.GetName()) })
	o := &observation{requests: []*request{q}, stowaway: up, nodes: map[string]nodeReading{strings.Repeat("n", 253): {at: noon}}}
	o.status = counting(map[string]uint64{"web-1": 4})
	pass := func(limits ceiling.Limits) string {
		statusOf(q, o, planFor(o, limits, noon), &actions{}, noon)
		if all := len(q.Status.Pods) + int(q.Status.PodsOmitted); all != 61 {
			t.Errorf("%d Pods, want 61", all)
		}
		return apimeta.FindStatusCondition(q.Status.Conditions, sondev1.ConditionIntercepted).Message
	}
	if got, want := pass(ceiling.Limits{}), "1 of 61 Pods are intercepted, 30 wait, 30 cannot be; Pod host-00: the Pod uses its node's network"; !strings.HasPrefix(got, want) {
		t.Errorf("condition %q, want %q", got, want)
	}
	if n := len(q.Status.Pods); n != maxOthers+1 || q.Status.Pods[n-1].Name != "web-1" || !q.Status.Pods[n-1].Active {
		t.Errorf("%d entries: %+v", n, q.Status.Pods)
	}
	q.pods = slices.DeleteFunc(q.pods, func(p *slim.Pod) bool { return strings.HasPrefix(p.GetName(), "host") })
	for n := range 30 {
		q.pods = append(q.pods, podNamed(fmt.Sprintf("new-%02d", n), func(pod *corev1.Pod) { pod.Spec.NodeName = strings.Repeat("n", 253) }))
	}
	pass(ceiling.Limits{})
	if e := q.Status.Pods[0]; e.Node != "" || len(e.Message) > 150 {
		t.Errorf("the entry of a Pod on a node that does not exist: %+v", e)
	}
	o.nodes["node-a"] = nodeReading{at: noon} // web-1 waits now, after those that are listed
	pass(ceiling.Limits{})
	if diff := cmp.Diff(int64(4), counts(q)["removed"]); diff != "" || counts(q)["web-1"] != 0 {
		t.Errorf("counts %v", counts(q))
	}
	if c := apimeta.FindStatusCondition(q.Status.Conditions, sondev1.ConditionIntercepted); c.Reason != sondev1.ReasonNotInterceptable || !strings.HasPrefix(c.Message, "0 of 61 Pods are intercepted, 61 wait; ") {
		t.Errorf("condition %+v", c)
	}
}
