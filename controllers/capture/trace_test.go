package capture

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// newTraceWorld returns a world with the reconciler of Traces, and a Trace of web.
func newTraceWorld(t *testing.T, change func(*sondev1.Trace), objects ...client.Object) *world {
	t.Helper()
	tr := &sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{Name: "tr", Namespace: "shop", UID: "7ace7ace-1111-4222-8333-444455556666", Generation: 1, CreationTimestamp: metav1.NewTime(dawn)},
		Spec: sondev1.TraceSpec{
			JobID: "trce", TargetDeployment: "web", Duration: "30", RetainFor: "1h", MaxBytes: 1 << 30, Format: sondev1.TraceNDJSON,
			Events: []sondev1.TraceGroup{sondev1.TraceProcess, sondev1.TraceIO},
		},
	}
	if change != nil {
		change(tr)
	}
	beside := newCapture(func(pc *sondev1.PacketCapture) {
		pc.Name, pc.UID, pc.Spec.JobID = "beside", "be51de00-1111-4222-8333-444455556666", ""
	})
	w := newWorld(t, beside, append(objects, tr)...)
	w.key = client.ObjectKeyFromObject(tr)
	w.r.Kind = Traces()
	return w
}

func (w *world) trace() *sondev1.Trace {
	w.t.Helper()
	var tr sondev1.Trace
	w.get(w.key, &tr)
	return &tr
}

// traced is the account of a probe that has completed its trace.
func traced(events, ring int64) account.Account {
	a := account.Account{
		State: account.StateDone, Engine: "tracepoints", Reason: sondev1.ReasonDuration, Complete: true, Started: dawn, Ended: dawn,
		Counts: account.Counts{Seen: events + ring, Bytes: 100 * events}, Events: events,
		Files: []account.File{{Name: "web.ndjson", Bytes: 100 * events}},
	}
	if ring > 0 {
		a.Lost = map[string]int64{"ring": ring}
	}
	return a
}

// TestTraceLife checks that a trace gets the same objects as a capture, with its own configuration and counts.
func TestTraceLife(t *testing.T) {
	t.Parallel()
	w := newTraceWorld(t, nil, deployment("web-1", "web-2")...)
	w.settle()
	if diff := cmp.Diff([]string{"web-1-trce", "web-2-trce"}, w.jobNames()); diff != "" {
		t.Fatalf("jobs (-want +got):\n%s", diff)
	}
	for _, job := range w.jobs() {
		args := job.Spec.Template.Spec.Containers[0].Args
		if job.Labels[sondev1.LabelKind] != kind.Trace.Name || job.Annotations[sondev1.AnnotationTargetContainer] != "*" || args[0] != "probe" || slices.Contains(args, agentjob.FlagHostPID) {
			t.Errorf("job %s: labels %v, annotations %v, arguments %v", job.Name, job.Labels, job.Annotations, args)
		}
	}
	w.checkTraceConfig("shop-web")

	w.agents(w.attach)
	w.settle()
	if phase := w.trace().Status.Phase; phase != sondev1.PhaseCapturing {
		t.Errorf("attached: phase %s", phase)
	}
	w.clock.Step(31 * time.Second)
	w.agents(func(p *corev1.Pod) {
		events := traced(10, 0)
		if strings.HasPrefix(p.Name, "web-2") {
			events = traced(5, 3)
		}
		w.end(events)(p)
	})
	w.settle()
	status := w.trace().Status
	if diff := cmp.Diff(sondev1.Totals{Pods: 2, Completed: 2, Bytes: 1500, Events: 15, Lost: 3}, status.Totals); diff != "" || status.Phase != sondev1.PhaseCompleted {
		t.Errorf("phase %s, totals (-want +got):\n%s", status.Phase, diff)
	}
	if diff := cmp.Diff([]map[string]int64{nil, {"ring": 3}}, []map[string]int64{status.Pods[0].Lost, status.Pods[1].Lost}); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
	if sent := w.sent(); !strings.Contains(sent, "15 events") {
		t.Errorf("events:\n%s\nwant the number of events", sent)
	}
	w.clock.Step(time.Hour)
	w.settle()
	if left := w.left(); len(left) > 0 {
		t.Errorf("left after the retention: %v", left)
	}
}

func (w *world) checkTraceConfig(configMap string) {
	w.t.Helper()
	var cm corev1.ConfigMap
	w.get(types.NamespacedName{Namespace: operatorNamespace, Name: configMap}, &cm)
	config, err := captureconfig.Parse([]byte(cm.Data[captureconfig.Key]))
	if err != nil {
		w.t.Fatal(err)
	}
	want := &captureconfig.Trace{Groups: []string{"process", "io"}, Durations: true}
	if diff := cmp.Diff(want, config.Trace); diff != "" || config.JobID != "trce" || config.Requester != "alice" || config.Kind != kind.Trace.Name {
		w.t.Errorf("config %+v; trace (-want +got):\n%s", config, diff)
	}
}

// TestTraceUntilThePodIsGone checks that a trace without a duration ends with its target, or at the ceiling.
func TestTraceUntilThePodIsGone(t *testing.T) {
	t.Parallel()
	w := newTraceWorld(t, func(tr *sondev1.Trace) { tr.Spec.Duration = "" }, deployment("web-1")...)
	w.r.Ceilings.Duration = 4 * time.Hour
	w.settle()
	if diff := cmp.Diff([]string{"web-1-trce 14400s"}, w.durations()); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
	w.agents(w.attach)
	w.settle()
	for _, o := range deployment("web-1") {
		w.remove(o)
	}
	gone := traced(4, 0)
	gone.Reason = sondev1.ReasonTargetGone
	w.agents(w.end(gone))
	w.settle()
	if status := w.trace().Status; status.Phase != sondev1.PhaseCompleted || status.Totals.Events != 4 {
		t.Errorf("status %+v", status)
	}
}

// TestTraceUnderALoweredCeiling: a trace without a duration keeps its end, also for Pods that join after the ceiling was lowered.
func TestTraceUnderALoweredCeiling(t *testing.T) {
	t.Parallel()
	w := newTraceWorld(t, func(tr *sondev1.Trace) { tr.Spec.Duration = "" }, deployment("web-1")...)
	w.r.Ceilings.Duration = 4 * time.Hour
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.clock.Step(time.Hour)
	w.r.Ceilings.Duration = 30 * time.Minute
	w.add(webPod("web-2", w.now))
	w.settle()
	if diff := cmp.Diff([]string{"web-1-trce 14400s", "web-2-trce 10800s"}, w.durations()); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
}

// TestTraceOfHostPID checks that a hostPID Pod needs the right on nodes, each Pod by itself.
func TestTraceOfHostPID(t *testing.T) {
	t.Parallel()
	hostPID := func(p *corev1.Pod) { p.Spec.HostPID = true }
	for name, tc := range map[string]struct {
		deny string
		want []string // entries
		flag bool
	}{
		"with the right":    {want: []string{"web-1 Pending Pending"}, flag: true},
		"without the right": {deny: "lacks trace on nodes", want: []string{"web-1 Failed HostNetworkDenied"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTraceWorld(t, nil, append(deployment(), webPod("web-1", hostPID))...)
			if tc.deny != "" {
				w.deny["nodes"] = tc.deny
			}
			w.settle()
			status := w.trace().Status
			if diff := cmp.Diff(tc.want, entries(status)); diff != "" {
				t.Fatalf("entries (-want +got):\n%s", diff)
			}
			if tc.deny != "" && !strings.Contains(status.Pods[0].Message, "the Pod sees its node's processes: "+tc.deny) {
				t.Errorf("message %q", status.Pods[0].Message)
			}
			jobs := w.jobs()
			if (len(jobs) == 1) != tc.flag || tc.flag && !slices.Contains(jobs[0].Spec.Template.Spec.Containers[0].Args, agentjob.FlagHostPID) {
				t.Errorf("%d Jobs, want one with the hostPID flag: %t", len(jobs), tc.flag)
			}
		})
	}
}

// TestTraceAndCaptureOfOnePod checks that a trace and a capture of the same Pod do not affect each other.
func TestTraceAndCaptureOfOnePod(t *testing.T) {
	t.Parallel()
	w := newTraceWorld(t, nil, deployment("web-1")...)
	w.settle()
	packets := *w.r
	packets.Kind = PacketCaptures(w)
	trace, beside := w.key, types.NamespacedName{Namespace: "shop", Name: "beside"}
	w.key = beside
	other := w.r
	w.r = &packets
	w.settle()
	w.key, w.r = trace, other
	w.settle()
	both := map[string]int{kind.PacketCapture.Name: 3, kind.Trace.Name: 3}
	if diff := cmp.Diff(both, w.objectsByKind()); diff != "" {
		t.Fatalf("objects (-want +got):\n%s", diff)
	}
	w.remove(w.trace())
	w.pass()
	if err := w.r.Sweeper.All(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{kind.PacketCapture.Name: 3}, w.objectsByKind()); diff != "" {
		t.Errorf("after the trace is gone (-want +got):\n%s", diff)
	}
}

// TestTracersOnANode checks that a namespace traces a bounded number of a node's Pods at the same time, that packets of the others are
// captured nevertheless, and that the end of a tracer makes room for the next.
func TestTracersOnANode(t *testing.T) {
	t.Parallel()
	onB := webPod("web-4", func(p *corev1.Pod) { p.Spec.NodeName = "node-b" })
	w := newTraceWorld(t, nil, append(deployment("web-1", "web-2", "web-3"), onB)...)
	w.r.Ceilings = ceiling.Limits{ProbesPerNode: 40, TracersPerNode: 4}
	w.settle()
	want := []string{"web-3 Pending CeilingTracers", "web-1 Pending Pending", "web-2 Pending Pending", "web-4 Pending Pending"}
	if diff := cmp.Diff(want, entries(w.trace().Status)); diff != "" {
		t.Fatalf("entries (-want +got):\n%s", diff)
	}
	message := w.trace().Status.Pods[0].Message
	for _, want := range []string{"4 Pods may have one there at the same time", "node-a", "cluster admin", "--max-tracers-per-node"} {
		if !strings.Contains(message, want) {
			t.Errorf("message %q does not say %q", message, want)
		}
	}
	trace, traces, packets := w.key, w.r, *w.r
	packets.Kind = PacketCaptures(w)
	w.key, w.r = types.NamespacedName{Namespace: "shop", Name: "beside"}, &packets
	w.settle()
	if got := len(w.jobs()); got != 3+4 {
		t.Errorf("Jobs %v, want three of the trace and four of the capture beside it", w.jobNames())
	}
	w.key, w.r = trace, traces
	w.agents(w.attach)
	w.settle()
	w.agents(func(p *corev1.Pod) {
		if strings.HasPrefix(p.Name, "web-1-trce") {
			w.end(traced(10, 0))(p)
		}
	})
	var ended corev1.Pod
	w.get(types.NamespacedName{Namespace: operatorNamespace, Name: "web-1-trce-x"}, &ended)
	if diff := cmp.Diff([]ctrl.Request{request(trace)}, w.r.queuedForNode(t.Context(), target.SlimAgent(&ended))); diff != "" {
		t.Errorf("woken by the end of a tracer (-want +got):\n%s", diff)
	}
	w.settle()
	if !slices.Contains(w.jobNames(), "web-3-trce") {
		t.Errorf("Jobs %v after a tracer has ended", w.jobNames())
	}
}

// TestCapturesWithProcessesAreTracers checks that captures whose packets name processes take the places of tracers, and that other
// captures need none.
func TestCapturesWithProcessesAreTracers(t *testing.T) {
	for name, tc := range map[string]struct {
		processes   bool
		want        []string
		wantWaiting int // Pods of a trace beside it, of three
	}{
		"with processes":    {true, []string{"web-2 Pending CeilingTracers", "web-3 Pending CeilingTracers", "web-1 Pending Pending"}, 3},
		"without processes": {false, []string{"web-1 Pending Pending", "web-2 Pending Pending", "web-3 Pending Pending"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTraceWorld(t, nil, deployment("web-1", "web-2", "web-3")...)
			w.r.Ceilings = ceiling.Limits{ProbesPerNode: 40, TracersPerNode: 2}
			trace, traces, packets := w.key, w.r, *w.r
			packets.Kind = PacketCaptures(w)
			w.key, w.r = types.NamespacedName{Namespace: "shop", Name: "beside"}, &packets
			pc := w.capture()
			pc.Spec.Processes = tc.processes
			w.update(pc)
			w.settle()
			if diff := cmp.Diff(tc.want, entries(w.capture().Status)); diff != "" {
				t.Errorf("entries of the capture (-want +got):\n%s", diff)
			}
			w.key, w.r = trace, traces
			w.settle()
			var waiting []string
			for _, e := range w.trace().Status.Pods {
				if e.Reason == sondev1.ReasonCeilingTracers && strings.Contains(e.Message, "captures with processes") {
					waiting = append(waiting, e.Name)
				}
			}
			if len(waiting) != tc.wantWaiting {
				t.Errorf("%v wait for a place beside the capture, want %d", waiting, tc.wantWaiting)
			}
		})
	}
}

// TestGateOfATraceThatWaitsForTracers: the webhook and the gates hold Pods only for a while for a trace that does not begin. Gating says no
// more than that, and is True again when the trace has begun.
func TestGateOfATraceThatWaitsForTracers(t *testing.T) {
	t.Parallel()
	busy := other("busy", -time.Minute, begun)
	w := newWorld(t, newTrace(), append(deployment("web-1"), busy)...)
	w.r.Ceilings = ceiling.Limits{CapturesPerNamespace: 0, TracersPerNode: 1}
	w.add(&sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{Name: "older", Namespace: "shop", UID: "01de4ace-1111-4222-8333-444455556666", CreationTimestamp: metav1.NewTime(dawn.Add(-time.Minute))},
		Status: sondev1.CaptureStatus{Phase: sondev1.PhasePending, Pods: []sondev1.PodResult{
			{UID: "u", Name: "else-1", Node: "node-a", Phase: sondev1.PhasePending, Reason: sondev1.ReasonCeilingTracers},
		}},
	})
	w.openGate()
	if got, all := w.gating(), entries(w.trace().Status); got != "True Gating" || !slices.Equal(all, []string{"web-1 Pending CeilingTracers"}) {
		t.Fatalf("Gating is %q, entries %v", got, all)
	}
	w.clock.Step(targetTimeout)
	w.settle()
	if got := w.gating(); got != "True Gating" {
		t.Errorf("Gating is %q after %v, while the webhook still holds Pods", got, targetTimeout)
	}
	w.clock.Step(time.Hour)
	w.settle()
	if got := w.gating(); got != "False CeilingTracers" {
		t.Errorf("Gating is %q after an hour", got)
	}
	w.r.Ceilings = ceiling.Limits{}
	w.settle()
	w.clock.Step(gateSettle)
	w.settle()
	if got := w.gating(); got != "True Gating" || len(w.jobs()) != 1 {
		t.Errorf("Gating is %q, and there are %d Jobs, after the trace has begun", got, len(w.jobs()))
	}
}

// TestNamespacesShareTracers checks that a namespace leaves as many tracers free as it takes, and that an older Trace gets a free one.
func TestNamespacesShareTracers(t *testing.T) {
	t.Parallel()
	older := &sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{Name: "older", Namespace: "private", UID: "01de4ace-1111-4222-8333-444455556666", CreationTimestamp: metav1.NewTime(dawn.Add(-time.Minute))},
		Status: sondev1.CaptureStatus{Phase: sondev1.PhasePending, Pods: []sondev1.PodResult{
			{UID: "u", Name: "else-1", Node: "node-a", Phase: sondev1.PhasePending, Reason: sondev1.ReasonCeilingTracers},
		}},
	}
	w := newTraceWorld(t, nil, append(deployment("web-1", "web-2"), older)...)
	w.r.Ceilings = ceiling.Limits{TracersPerNode: 3}
	w.settle()
	if diff := cmp.Diff([]string{"web-2 Pending CeilingTracers", "web-1 Pending Pending"}, entries(w.trace().Status)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}
