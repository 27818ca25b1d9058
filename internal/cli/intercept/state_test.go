package intercept

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestReportsOfManyPods: a Stowaway that was taken over does not fill the memory of a developer's machine with counters.
func TestReportsOfManyPods(t *testing.T) {
	s := NewState(&v1alpha1.InterceptRequest{ObjectMeta: metav1.ObjectMeta{UID: "a"}}, time.Unix(0, 0))
	add := func(pod string, matched uint64) {
		s.Add(&tunnel.Report{Pod: pod, Routes: map[string]tunnel.Counters{"a": {Matched: matched}}})
	}
	for n := range 2 * maxPods {
		add(fmt.Sprint("pod", n), 1)
	}
	add("pod1", 2)
	if len(s.counters) != maxPods || s.counters["pod1"].Matched != 2 {
		t.Errorf("counters of %d Pods, want %d; pod1: %+v", len(s.counters), maxPods, s.counters["pod1"])
	}
	clear(s.counters)
	if add(strings.Repeat("x", maxUID+1), 1); len(s.counters) != 0 {
		t.Error("a Pod with a longer UID than Pods have is counted")
	}
}

func TestOneStreamOfReports(t *testing.T) {
	reported := make(chan string)
	handler := (&Local{OnReport: func(r tunnel.Report) { reported <- r.Pod }}).Handler()
	post := func(body io.Reader) int {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, tunnel.PathReport, body))
		return answer.Code
	}
	body, in := io.Pipe()
	first := make(chan int)
	go func() { first <- post(body) }()
	go func() { _, _ = io.WriteString(in, `{"pod":"one"}`+"\n") }()
	if got := <-reported; got != "one" {
		t.Errorf("reported %q", got)
	}
	if got := post(strings.NewReader("")); got != http.StatusConflict {
		t.Errorf("a second stream at the same time: %d", got)
	}
	_ = in.Close()
	if got := <-first; got != http.StatusOK {
		t.Errorf("the first stream: %d", got)
	}
	if got := post(strings.NewReader("")); got != http.StatusOK {
		t.Errorf("a stream after it: %d", got)
	}
}

// TestSumOfPods: counts stay on the screen when Pods go, and when a status or a carrier begins again at zero.
func TestSumOfPods(t *testing.T) {
	pod := func(name, uid string, matched int64) v1alpha1.InterceptPod {
		return v1alpha1.InterceptPod{Name: name, UID: uid, Active: true, InterceptCounters: v1alpha1.InterceptCounters{Matched: matched, Passed: 1, Overlaps: 1}}
	}
	object := func(phase v1alpha1.InterceptPhase, pods ...v1alpha1.InterceptPod) *v1alpha1.InterceptRequest {
		return &v1alpha1.InterceptRequest{
			ObjectMeta: metav1.ObjectMeta{UID: "a"}, Status: v1alpha1.InterceptRequestStatus{Phase: phase, Pods: pods},
		}
	}
	now := time.Unix(0, 0)
	s := NewState(object(""), now)
	want := func(step, rows string, notes ...string) {
		t.Helper()
		v, got := s.View(now, true), ""
		for _, p := range v.Pods {
			got += fmt.Sprintf("%s %s %d, ", p.Name, p.State, p.Count)
		}
		if got != rows {
			t.Errorf("%s: rows %q, want %q", step, got, rows)
		}
		if diff := cmp.Diff(notes, v.Notes); notes != nil && diff != "" {
			t.Errorf("%s: notes (-want +got):\n%s", step, diff)
		}
	}
	early := s.TrafficOf("shop/web-3")
	early.requests.Add(1)
	want("before the status has the Pod", "others Gone 1, ")
	s.SetObject(object(v1alpha1.InterceptActive, pod("web-1", "u1", 2), pod("web-2", "u2", 3), pod("web-3", "u3", 0)))
	s.TrafficOf("shop/web-1").requests.Add(4)
	s.Add(&tunnel.Report{Pod: "u2", Routes: map[string]tunnel.Counters{"a": {Matched: 5, Passed: 2}}})
	want("three Pods", "web-1 Active 4, web-2 Active 5, web-3 Active 1, ", "4 requests went to the app", "3 requests matched, but an older InterceptRequest took them")
	s.SetObject(object(v1alpha1.InterceptActive, pod("web-1", "u1", 0)))
	early.requests.Add(1)
	s.TrafficOf("shop/web-2").requests.Add(6)
	want("two are gone", "web-1 Active 4, others Gone 8, ", "4 requests went to the app", "3 requests matched, but an older InterceptRequest took them")
	s.SetObject(object(v1alpha1.InterceptActive, pod("web-1", "u1", 0), pod("web-2", "u2", 0)))
	want("one is back", "web-1 Active 4, web-2 Active 6, others Gone 2, ")
	s.SetObject(object(v1alpha1.InterceptFailed))
	want("failed, and the status lists no Pod", "web-1 Active 4, web-2 Active 6, others Gone 2, ")
	s.SetEnded("Ended", "The app answers")
	want("the end", "web-1 Ended 4, web-2 Ended 6, others Gone 2, ", "The app answers", "4 requests went to the app", "3 requests matched, but an older InterceptRequest took them")
	for n := range 2 * maxPods {
		s.TrafficOf(fmt.Sprint("shop/pod", n)).requests.Add(1)
	}
	s.TrafficOf(strings.Repeat("x", 2*maxName)).requests.Add(1)
	if len(s.unlisted) != maxPods {
		t.Errorf("%d Pods that no status lists", len(s.unlisted))
	}
}

// TestNotesOfPods: what a Pod waits for is shown once, although the condition quotes it.
func TestNotesOfPods(t *testing.T) {
	for message, want := range map[string][]string{
		"0 of 2 Pods are intercepted; Pod web-1: no room": {"0 of 2 Pods are intercepted", "web-1: no room"},
		"Pod web-1: no room":                              {"web-1: no room"},
	} {
		o := &v1alpha1.InterceptRequest{}
		o.Status.Pods = []v1alpha1.InterceptPod{{Name: "web-1", UID: "u1", Message: "no room"}, {Name: "web-2", UID: "u2"}}
		o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionIntercepted, Status: metav1.ConditionFalse, Message: message}}
		now := time.Unix(0, 0)
		if diff := cmp.Diff(want, NewState(o, now).View(now, true).Notes); diff != "" {
			t.Errorf("%s: notes (-want +got):\n%s", message, diff)
		}
	}
}

// TestNotes: each problem is shown once, and only while it lasts.
func TestNotes(t *testing.T) {
	o := &v1alpha1.InterceptRequest{Status: v1alpha1.InterceptRequestStatus{Phase: v1alpha1.InterceptLost}}
	o.Status.Pods = []v1alpha1.InterceptPod{{Name: "web-1", UID: "u1", Message: "the carrier is starting"}}
	for _, kind := range []string{v1alpha1.ConditionStowawayReady, v1alpha1.ConditionClientConnected} {
		o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Message: "paused"})
	}
	now := time.Unix(0, 0)
	s := NewState(o, now)
	want := func(step string, notes ...string) {
		t.Helper()
		if diff := cmp.Diff(notes, s.View(now, true).Notes); diff != "" {
			t.Errorf("%s: notes (-want +got):\n%s", step, diff)
		}
	}
	const waits = "web-1: the carrier is starting"
	s.SetRefused(errors.New("nothing answers"))
	want("refused", "paused", "nothing answers. Start your process; until then the app answers, if it listens", waits)
	s.SetRefused(nil)
	want("answered", "paused", waits)
	s.SetTunnel(errLost)
	want("the connection has just ended", "paused", waits)
	now = now.Add(shownLoss)
	s.SetTunnel(errLost)
	want("the connection was lost", "paused", errLost.Error()+"; connecting again", waits)
	over := o.DeepCopy()
	over.Status.Phase = v1alpha1.InterceptEnded
	s.SetObject(over)
	want("expired")
	s.SetEnded("Ended", "The app answers")
	want("the end", "The app answers")
	s = NewState(&v1alpha1.InterceptRequest{}, now)
	s.Add(&tunnel.Report{Pod: "u1", Routes: map[string]tunnel.Counters{"": {Passed: 1, Overlaps: 1}}})
	s.SetObject(o)
	want("one request", "paused", waits, "1 request went to the app", "1 request matched, but an older InterceptRequest took them")
	// A log has each note once, so that a count in it would be a new line each time.
	for match, text := range map[*v1alpha1.InterceptMatch]string{
		{}:  "Other requests go to the app",
		nil: "Health checks go to the app, as do requests that your process does not take",
	} {
		o.Spec.Match = match
		s.SetObject(o)
		log := s.View(now, false).Notes
		if diff := cmp.Diff([]string{"paused", waits, text, "Requests matched, but an older InterceptRequest took them"}, log); diff != "" {
			t.Errorf("notes of a log (-want +got):\n%s", diff)
		}
	}
	o.Spec.Match, o.Spec.Probes = nil, v1alpha1.InterceptClient
	s.SetObject(o)
	if log, want := s.View(now, false).Notes, "Health checks by HTTP and gRPC go to the app, as do requests that your process does not take"; !slices.Contains(log, want) {
		t.Errorf("notes %q lack %q", log, want)
	}
	o.Spec.Probes = ""
	several := &v1alpha1.InterceptRequest{}
	several.Status.Pods = []v1alpha1.InterceptPod{{Name: "web-1", UID: "u1", Message: "full"}, {Name: "web-2", UID: "u2", Message: "slow"}, {Name: "web-3", UID: "u3", Message: "full"}}
	s = NewState(several, now)
	want("Pods with the same message", "2 Pods: full", "web-2: slow")
}

// TestCutNotes: a terminal shows how many requests were cut. A log has a line now and then, and the number at the end.
func TestCutNotes(t *testing.T) {
	o := &v1alpha1.InterceptRequest{Spec: v1alpha1.InterceptRequestSpec{DestinationIP: "127.0.0.1", DestinationPort: 8080}}
	o.Status.Phase = v1alpha1.InterceptActive
	now := time.Unix(0, 0)
	s := NewState(o, now)
	want := func(step string, terminal bool, n string) {
		t.Helper()
		var want []string
		if n != "" {
			want = []string{"cut: " + n + ", because the process at 127.0.0.1:8080 did not read in time, and more than 256 MiB would have waited here"}
		}
		var got []string
		for _, note := range s.View(now, terminal).Notes {
			if strings.HasPrefix(note, "cut: ") {
				got = append(got, note)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: notes (-want +got):\n%s", step, diff)
		}
	}
	want("none", false, "")
	want("none", true, "")
	s.AddCut(1)
	want("the first", true, "1 request")
	want("the first in a log", false, "1 request")
	s.AddCut(2)
	want("three", true, "3 requests")
	want("three, too early for a log", false, "1 request")
	now = now.Add(cutInterval)
	want("three in a log", false, "3 requests")
	s.AddCut(1)
	s.SetEnded("Ended", "")
	want("four at the end", true, "4 requests")
	want("four at the end of a log", false, "4 requests")
}

// TestLostTunnel: while this machine is not connected, nothing is shown as active, although the status may not say so yet.
func TestLostTunnel(t *testing.T) {
	o := &v1alpha1.InterceptRequest{Status: v1alpha1.InterceptRequestStatus{Phase: v1alpha1.InterceptActive}}
	o.Status.Pods = []v1alpha1.InterceptPod{{Name: "web-1", UID: "u1", Active: true}}
	now := time.Unix(0, 0)
	s := NewState(o, now)
	const active, lost = "Active, web-1 Active", "Lost: this machine is not connected, web-1 Waiting"
	for _, step := range []struct {
		name   string
		after  time.Duration
		tunnel []error
		want   string
		// connected is the answer of Connected.
		connected bool
	}{
		{name: "before the first connection", want: active},
		{name: "connected", tunnel: []error{nil}, want: active, connected: true},
		{name: "it has just ended", tunnel: []error{errLost}, want: active},
		{name: "it is still lost", after: shownLoss, tunnel: []error{errors.New("no route")}, want: lost},
		{name: "connected again", tunnel: []error{nil}, want: active, connected: true},
		{name: "a short loss", tunnel: []error{errLost, nil}, want: active, connected: true},
		{name: "lost again", after: time.Hour, tunnel: []error{errLost}, want: active},
		{name: "Stowaway does not know the intercept", after: shownLoss, tunnel: []error{nil, errNotKnown}, want: lost},
		{name: "nor later", after: shownLoss, tunnel: []error{nil, errNotKnown}, want: lost},
		{name: "a connection that may end at once", tunnel: []error{nil}, want: lost},
		{name: "it did", tunnel: []error{errNotKnown}, want: lost},
		{name: "another", after: time.Minute, tunnel: []error{nil}, want: lost},
		{name: "it lasts", after: settled, want: active, connected: true},
	} {
		now = now.Add(step.after)
		for _, err := range step.tunnel {
			s.SetTunnel(err)
		}
		v := s.View(now, true)
		if got := v.Status + ", " + v.Pods[0].Name + " " + v.Pods[0].State; got != step.want || s.Connected() != step.connected {
			t.Errorf("%s: %s, connected: %t; want %s, %t", step.name, got, s.Connected(), step.want, step.connected)
		}
	}
}

// TestOrderOfRequests: the list is in the order of time, although each Pod reports its own requests.
func TestOrderOfRequests(t *testing.T) {
	s := NewState(&v1alpha1.InterceptRequest{}, time.Unix(0, 0))
	for _, at := range []int64{3, 1, 4, 2} {
		s.Add(&tunnel.Report{Requests: []tunnel.Request{{Time: time.Unix(at, 0), Path: fmt.Sprint("/", at)}}})
	}
	got := strings.Join(s.View(time.Unix(0, 0), true).Log, "\n")
	for _, path := range []string{"/4", "/3", "/2", "/1"} {
		_, rest, found := strings.Cut(got, path+" ")
		if !found {
			t.Fatalf("no %s after the newer ones in\n%s", path, got)
		}
		got = rest
	}
}

// TestMissingRequests: the view counts the requests that are in no report.
func TestMissingRequests(t *testing.T) {
	s := NewState(&v1alpha1.InterceptRequest{}, time.Unix(0, 0))
	for i, tc := range []struct {
		pod     string
		numbers []uint64
		want    uint64
	}{
		{"p1", []uint64{3, 4}, 2},
		{"p1", nil, 0},
		{"p1", []uint64{5, 7, 10}, 3},
		{"p2", []uint64{1}, 0},
		{"p1", []uint64{0}, 0}, // of a carrier that does not number them
		{"p1", []uint64{2}, 1}, // of a new carrier
	} {
		r := &tunnel.Report{Pod: tc.pod}
		for _, n := range tc.numbers {
			r.Requests = append(r.Requests, tunnel.Request{Number: n})
		}
		if got := s.Add(r); got != tc.want {
			t.Errorf("step %d: %d are missing, want %d", i, got, tc.want)
		}
	}
	if diff := cmp.Diff([]string{"not in the list: 6 requests by you"}, s.View(time.Unix(0, 0), true).Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	for n := range 2 * maxPods {
		s.Add(&tunnel.Report{Pod: fmt.Sprint("pod", n), Requests: []tunnel.Request{{Number: 1}}})
	}
	if s.Add(&tunnel.Report{Pod: strings.Repeat("x", maxUID+1), Requests: []tunnel.Request{{Number: 1}}}); len(s.last) != maxPods {
		t.Errorf("numbers of %d Pods, want %d", len(s.last), maxPods)
	}
}

// TestDials: each stream says whether the developer's process takes it, and a refused one counts.
func TestDials(t *testing.T) {
	traffic, dialed := &Traffic{}, []bool{}
	l := &Local{Route: "a", OnDial: func(err error) { dialed = append(dialed, err == nil) }, TrafficOf: func(string) *Traffic { return traffic }}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_ = conn.Close()
		}
	}()
	for _, l.Address = range []string{"127.0.0.1:1", listener.Addr().String()} {
		l.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, tunnel.PathOpen+"a", nil).WithContext(t.Context()))
	}
	if len(dialed) != 2 || dialed[0] || !dialed[1] || traffic.failed.Load() != 1 {
		t.Errorf("dialed %v, %d failed", dialed, traffic.failed.Load())
	}
}
