package webhooks

import (
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/access"
	"github.com/sonde-operator/sonde/internal/ceiling"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/stamp"
)

func traceSpec(change func(*sondev1.TraceSpec)) sondev1.TraceSpec {
	s := sondev1.TraceSpec{
		TargetDeployment: "web", Duration: "30", RetainFor: "1h", MaxBytes: 1 << 30, Format: sondev1.TraceNDJSON,
		Events: []sondev1.TraceGroup{sondev1.TraceProcess, sondev1.TraceFile},
	}
	if change != nil {
		change(&s)
	}
	return s
}

func traceOf(kind sondev1.TargetKind, name string) func(*sondev1.TraceSpec) {
	return func(s *sondev1.TraceSpec) {
		s.TargetDeployment, s.TargetRef = "", &sondev1.TargetReference{Kind: kind, Name: name}
	}
}

func traceHandler(live client.Reader, r access.Reviews) *CaptureHandler {
	return &CaptureHandler{
		Kind: kind.Trace, Checks: TraceChecks{},
		Live: live, Reviews: r, Key: testKey, OperatorNamespace: "sonde-system", Clock: fixedClock(),
	}
}

func newTrace(ns string, s sondev1.TraceSpec) *sondev1.Trace {
	return &sondev1.Trace{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}, Spec: s}
}

func TestTraceCreate(t *testing.T) {
	foreign := func(s *sondev1.TraceSpec) { s.TargetNamespace, s.TargetDeployment = "bank", "vault" }
	for name, tc := range map[string]struct {
		home string // shop if empty
		spec func(*sondev1.TraceSpec)
		may  *rights
		code int32    // 0: admitted
		want []string // in the message
	}{
		"own namespace":         {may: mayTrace("pods/shop")},
		"until the Pod is gone": {spec: func(s *sondev1.TraceSpec) { s.Duration = "" }, may: mayTrace("pods/shop")},
		"from a hub":            {home: "hub", spec: foreign, may: mayTrace("pods/bank")},
		"foreign, not a hub":    {spec: foreign, may: mayTrace("pods/shop", "pods/bank"), code: code403, want: []string{"hub=true", "create the Trace in namespace bank"}},
		"no right":              {may: mayTrace(), code: code403, want: []string{"alice lacks trace on pods/shop"}},
		// Who may capture packets may not see what processes do.
		"may capture": {may: may("pods/shop", "nodes"), code: code403, want: []string{"alice lacks trace on pods/shop"}},

		"hostPID Pod":                {spec: traceOf(sondev1.TargetPod, "seesall"), may: mayTrace("pods/shop"), code: code403, want: []string{"Pod shop/seesall", "hostPID: true", "system calls", "lacks trace on nodes"}},
		"hostPID Pod with right":     {spec: traceOf(sondev1.TargetPod, "seesall"), may: mayTrace("pods/shop", "nodes")},
		"hostNetwork Pod":            {spec: traceOf(sondev1.TargetPod, "hostone"), may: mayTrace("pods/shop"), code: code403, want: []string{"hostNetwork: true", "lacks trace on nodes"}},
		"hostNetwork Pod with right": {spec: traceOf(sondev1.TargetPod, "hostone"), may: mayTrace("pods/shop", "nodes")},
		"hostNetwork DaemonSet":      {spec: traceOf(sondev1.TargetDaemonSet, "log"), may: mayTrace("pods/shop"), code: code403, want: []string{"DaemonSet shop/log", "lacks trace on nodes"}},
		"unknown Deployment":         {spec: func(s *sondev1.TraceSpec) { s.TargetDeployment = "wbe" }, may: mayTrace("pods/shop"), code: code422, want: []string{"Deployment shop/wbe not found"}},
		"the operator's namespace":   {home: "sonde-system", may: mayTrace("pods/sonde-system"), code: code403, want: []string{"the operator's own", "create the Trace"}},
		"jobId of a running PacketCapture": {
			spec: func(s *sondev1.TraceSpec) { s.JobID = "busy" }, may: mayTrace("pods/shop"), code: code422, want: []string{"in use by PacketCapture running"},
		},
		"jobId of a running Trace": {
			spec: func(s *sondev1.TraceSpec) { s.JobID = "trce" }, may: mayTrace("pods/shop"), code: code422, want: []string{"in use by Trace going"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			home := tc.home
			if home == "" {
				home = "shop"
			}
			going := &sondev1.Trace{ObjectMeta: meta("shop", "going"), Spec: sondev1.TraceSpec{JobID: "trce", TargetDeployment: "web"}}
			h := traceHandler(liveReader(t, append(append(world(), otherCaptures()...), going)...), tc.may)
			req := request(t, admissionv1.Create, "Trace", home, newTrace(home, traceSpec(tc.spec)), nil)
			resp := h.Handle(t.Context(), req)
			if tc.code != 0 {
				refused(t, resp, tc.code, tc.want...)
				return
			}
			if !resp.Allowed {
				t.Fatalf("refused: %s", resp.Result.Message)
			}
			var got sondev1.Trace
			patched(t, req, resp, &got)
			if _, err := stamp.Verify(testKey, home, kind.Trace.Name, got.Spec, got.Annotations, now); err != nil {
				t.Error(err)
			}
			if _, err := stamp.Verify(testKey, home, kind.PacketCapture.Name, got.Spec, got.Annotations, now); err == nil {
				t.Error("a Trace's stamp serves for a PacketCapture")
			}
		})
	}
}

// What the schema refuses after the webhook is refused before anything is looked up.
func TestTraceShape(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*sondev1.TraceSpec)
		want   string
	}{
		"no target":       {func(s *sondev1.TraceSpec) { s.TargetDeployment = "" }, "name a target"},
		"two targets":     {func(s *sondev1.TraceSpec) { s.TargetRef = &sondev1.TargetReference{} }, "make a second Trace"},
		"bad namespace":   {func(s *sondev1.TraceSpec) { s.TargetNamespace = "../kube-system" }, "targetNamespace must be the name"},
		"bad jobId":       {func(s *sondev1.TraceSpec) { s.JobID = "QWER" }, "four characters of [a-z0-9]"},
		"words":           {func(s *sondev1.TraceSpec) { s.Duration = "a while" }, "write seconds"},
		"zero":            {func(s *sondev1.TraceSpec) { s.Duration = "0" }, "between 1s and 24h"},
		"two days":        {func(s *sondev1.TraceSpec) { s.Duration = "48h" }, "between 1s and 24h"},
		"no end":          {func(s *sondev1.TraceSpec) { s.Duration = strings.Repeat("9", 1000) }, "1000 characters"},
		"brief retention": {func(s *sondev1.TraceSpec) { s.RetainFor = "9s" }, "retainFor must lie between 10s and 168h"},
	} {
		t.Run(name, func(t *testing.T) {
			r := mayTrace("pods/shop")
			resp := traceHandler(liveReader(t, world()...), r).Handle(t.Context(), request(t, admissionv1.Create, "Trace", "shop", newTrace("shop", traceSpec(tc.change)), nil))
			refused(t, resp, code422, tc.want)
			if len(r.asked) != 0 {
				t.Errorf("asked for %v about something that cannot be", r.asked)
			}
		})
	}
}

// TestTraceCeilings: a trace without a duration lasts no longer than the ceiling, and is not refused for it.
func TestTraceCeilings(t *testing.T) {
	for name, tc := range map[string]struct {
		duration string
		bytes    int64
		want     string
	}{
		"at the ceilings":       {duration: "1h", bytes: 2 << 30},
		"until the Pod is gone": {bytes: 1 << 30},
		"too long":              {duration: "61m", bytes: 1 << 30, want: "--max-duration"},
		"too large":             {duration: "1h", bytes: 3 << 30, want: "--max-bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			h := traceHandler(liveReader(t, world()...), mayTrace("pods/shop"))
			h.Ceilings = ceiling.Limits{Duration: time.Hour, Bytes: 2 << 30}
			s := traceSpec(func(s *sondev1.TraceSpec) { s.Duration, s.MaxBytes = tc.duration, tc.bytes })
			resp := h.Handle(t.Context(), request(t, admissionv1.Create, "Trace", "shop", newTrace("shop", s), nil))
			if tc.want != "" {
				refused(t, resp, code403, tc.want, "cluster admin")
			} else if !resp.Allowed {
				t.Errorf("refused: %s", resp.Result.Message)
			}
		})
	}
}

// TestTraceAsksForItsVerb: for nothing else, and on nodes only where the target is one with its node.
func TestTraceAsksForItsVerb(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*sondev1.TraceSpec)
		want   []string
	}{
		"a Deployment": {nil, []string{"pods/shop"}},
		"hostPID":      {traceOf(sondev1.TargetPod, "seesall"), []string{"pods/shop", "nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := mayTrace("pods/shop", "nodes")
			resp := traceHandler(liveReader(t, world()...), r).Handle(t.Context(), request(t, admissionv1.Create, "Trace", "shop", newTrace("shop", traceSpec(tc.change)), nil))
			if !resp.Allowed || !slices.Equal(r.asked, tc.want) {
				t.Errorf("allowed: %t after %v, want %v", resp.Allowed, r.asked, tc.want)
			}
		})
	}
}

// TestTraceWarnings: who names a container that the target's Pods are not made with is told which there are, and has his Trace.
func TestTraceWarnings(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: meta("shop", "two")}
	web.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{{Name: "web"}, {Name: "log"}}, InitContainers: []corev1.Container{{Name: "setup"}},
	}
	pod := &corev1.Pod{ObjectMeta: meta("shop", "debugged"), Spec: corev1.PodSpec{
		Containers:          []corev1.Container{{Name: "web"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger-1"}}},
	}}
	many := make([]string, 16)
	for i := range many {
		many[i] = strings.Repeat("x", 60) + string(rune('a'+i))
	}
	two := func(names ...string) func(*sondev1.TraceSpec) {
		return func(s *sondev1.TraceSpec) { s.TargetDeployment, s.Containers = "two", names }
	}
	for name, tc := range map[string]struct {
		change func(*sondev1.TraceSpec)
		want   string // empty: no warning
	}{
		"all":                 {change: two()},
		"those there are":     {change: two("web", "setup")},
		"one there is not":    {change: two("web", "proxy"), want: "Deployment shop/two has no container proxy (it has web, log, setup (init)): a Pod that has none"},
		"the gate of a gated": {change: func(s *sondev1.TraceSpec) { two("sonde-gate", "web")(s); s.Gate = &sondev1.TraceGate{Enabled: true} }},
		"the gate of no gate": {change: two("sonde-gate"), want: "has no container sonde-gate"},
		"of a Pod": {change: func(s *sondev1.TraceSpec) {
			traceOf(sondev1.TargetPod, "debugged")(s)
			s.Containers = []string{"debugger-1"}
		}},
		"of a Pod, none":       {change: func(s *sondev1.TraceSpec) { traceOf(sondev1.TargetPod, "debugged")(s); s.Containers = []string{"log"} }, want: "Pod shop/debugged has no container log (it has web, debugger-1 (ephemeral))"},
		"no more than is read": {change: two(many...), want: "has no container xxx"},
	} {
		t.Run(name, func(t *testing.T) {
			h := traceHandler(liveReader(t, append(world(), web.DeepCopy(), pod.DeepCopy())...), mayTrace("pods/shop"))
			resp := h.Handle(t.Context(), request(t, admissionv1.Create, "Trace", "shop", newTrace("shop", traceSpec(tc.change)), nil))
			if !resp.Allowed {
				t.Fatalf("refused: %s", resp.Result.Message)
			}
			got := strings.Join(resp.Warnings, "\n")
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) || len(got) > 256 {
				t.Errorf("%d bytes: %q, want %q in it", len(got), got, tc.want)
			}
		})
	}
}

// Whoever may not trace there learns nothing of the target's containers.
func TestTraceWarningsAreForThoseWhoMay(t *testing.T) {
	s := traceSpec(func(s *sondev1.TraceSpec) { s.Containers = []string{"guess"} })
	resp := traceHandler(liveReader(t, world()...), mayTrace()).Handle(t.Context(), request(t, admissionv1.Create, "Trace", "shop", newTrace("shop", s), nil))
	if resp.Allowed || len(resp.Warnings) > 0 {
		t.Errorf("allowed: %t, warnings %v", resp.Allowed, resp.Warnings)
	}
}
