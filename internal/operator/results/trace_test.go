package results

import (
	"bufio"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

const (
	traceProgress = "/v1/namespaces/shop/traces/web/progress"
	traceFile     = "/v1/namespaces/shop/traces/web/files/pod-1/web-1-qwer.ndjson"
)

// newTraceWorld adds a trace with the name and Pod of the capture web, and a requester who may only trace.
func newTraceWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.rights.verb = sondev1.VerbTrace
	w.create(w.trace())
	w.create(w.access("of-the-trace", func(ra *sondev1.ResultAccess) { ra.Spec.CaptureRef.Kind = sondev1.CaptureTrace }))
	var pairs corev1.Secret
	if err := w.client.Get(t.Context(), keyOf(w.owned("shop-web-keeper", "")), &pairs); err != nil {
		t.Fatal(err)
	}
	w.create(&corev1.Secret{ObjectMeta: w.traced("shop-web-keeper-2", ""), Data: pairs.Data})
	w.create(agent(w.traced("web-1-trce-x", "pod-1")))
	return w
}

func (w *world) trace() *sondev1.Trace {
	tr := &sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "trace-1", CreationTimestamp: metav1.Now()},
		Spec:       sondev1.TraceSpec{TargetDeployment: "web", RetainFor: "1h"},
		Status: sondev1.CaptureStatus{Phase: sondev1.PhaseCapturing, Pods: []sondev1.PodResult{
			{UID: "pod-1", Name: "web-1", Node: "n1", Phase: sondev1.PhaseCapturing},
		}},
	}
	tr.Annotations = w.stamped(kind.Trace.Name, tr.Spec, "uid-shop")
	return tr
}

// traced is the metadata of an object made for the trace.
func (w *world) traced(name, podUID string) metav1.ObjectMeta {
	m := w.owned(name, podUID)
	m.Labels[sondev1.LabelUID] = "trace-1"
	return m
}

// TestTraceProgress: a trace's lines count written and lost events, live and at the end.
func TestTraceProgress(t *testing.T) {
	w := newTraceWorld(t)
	resp := w.get(traceProgress, nil)
	if resp.code != http.StatusOK {
		t.Fatalf("got %d", resp.code)
	}
	l := &lines{t: t, scan: bufio.NewScanner(resp.body)}
	l.want("web-1", sondev1.PhaseCapturing, 0)
	lost := map[string]int64{"ring": 2, "writer": 1}
	live := account.Account{State: account.StateCapturing, Counts: account.Counts{Seen: 10}, Events: 7, Lost: lost}
	w.keeper.accounts <- live
	if got := l.want("web-1", sondev1.PhaseCapturing, 0); got.Account.Events != 7 || got.Account.LostEvents() != 3 {
		t.Errorf("account %+v", got.Account)
	}
	live.State, live.Complete = account.StateDone, true
	w.keeper.accounts <- live
	l.want("web-1", sondev1.PhaseCompleted, 0)
	change(w, w.trace(), func(tr *sondev1.Trace) {
		tr.Status.Phase = sondev1.PhaseCompleted
		tr.Status.Pods[0] = sondev1.PodResult{
			UID: "pod-1", Name: "web-1", Node: "n1", Phase: sondev1.PhaseCompleted, Reason: "Duration", Engine: "tracepoints",
			Bytes: 900, Events: 7, Lost: lost, Files: []sondev1.ResultFile{{Name: "web-1-qwer.ndjson", Bytes: 900}},
		}
	})
	got := l.want("web-1", sondev1.PhaseCompleted, 0) // the final counts of the status
	want := &account.Account{
		Version: 3, State: account.StateDone, Complete: true, Engine: "tracepoints", Reason: "Duration",
		Counts: account.Counts{Seen: 10, Bytes: 900}, Events: 7, Lost: lost,
		Files: []account.File{{Name: "web-1-qwer.ndjson", Bytes: 900}},
	}
	if diff := cmp.Diff(want, got.Account); diff != "" || !got.Account.AddsUp() {
		t.Errorf("account (-want +got):\n%s", diff)
	}
	if got, ok := l.next(); ok {
		t.Errorf("after the end came %+v", got)
	}
}

// TestTraceFiles: a trace's token opens its files and no others.
func TestTraceFiles(t *testing.T) {
	nodes := func(flag string) func(*world) {
		return func(w *world) {
			change(w, agent(w.traced("web-1-trce-x", "")), func(p *corev1.Pod) {
				p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, flag)
			})
		}
	}
	for name, tc := range map[string]struct {
		path   string // traceFile if empty
		change func(*world)
		code   int
		want   string // of a refusal
	}{
		"a file":                        {code: http.StatusOK},
		"may capture, not trace":        {change: func(w *world) { w.rights.verb = sondev1.VerbCapture }, code: 403, want: "lacks trace on pods"},
		"a PacketCapture, may trace":    {path: webFile, code: 403, want: "lacks capture on pods"},
		"an access to the capture only": {change: func(w *world) { w.remove(w.access("of-the-trace", nil)) }, code: 401, want: "gives no access to Trace"},
		"hostPID":                       {change: nodes(agentjob.FlagHostPID), code: 403, want: "hostPID: true, so its system calls are the whole node's: lacks trace on nodes"},
		"hostNetwork":                   {change: nodes(agentjob.FlagHostNetwork), code: 403, want: "hostNetwork: true"},
		"hostPID, with the right": {
			change: func(w *world) { nodes(agentjob.FlagHostPID)(w); w.rights.set(true, true) }, code: http.StatusOK,
		},
		"the trace is gone": {change: func(w *world) { w.remove(w.trace()) }, code: 404, want: "Trace shop/web not found"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTraceWorld(t)
			if tc.change != nil {
				tc.change(w)
			}
			path := tc.path
			if path == "" {
				path = traceFile
			}
			resp := w.get(path, nil)
			if tc.code != http.StatusOK {
				w.fails(resp, tc.code, tc.want)
				return
			}
			b, err := io.ReadAll(resp.body)
			if err != nil || resp.code != tc.code || len(b) != len(w.keeper.content) {
				t.Errorf("got %d and %d bytes, %v", resp.code, len(b), err)
			}
		})
	}
}
