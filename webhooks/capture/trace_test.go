package capture

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
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

func traceHandler(live client.Reader, r access.Reviews) *Handler {
	return &Handler{
		Quota: &Quota{},
		Kind:  kind.Trace, Checks: TraceChecks{},
		Live: live, Cache: live, Reviews: r, Key: webhooktest.Key, OperatorNamespace: webhooktest.OperatorNamespace, Clock: webhooktest.Clock(),
	}
}

func newTrace(ns string, s sondev1.TraceSpec) *sondev1.Trace {
	return &sondev1.Trace{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}, Spec: s}
}

// TestTraceAsksForItsVerb: only the verb trace is reviewed, and on nodes only if the target shares their namespaces.
func TestTraceAsksForItsVerb(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*sondev1.TraceSpec)
		want   []string
	}{
		"a Deployment": {nil, []string{"pods/shop"}},
		"hostPID":      {traceOf(sondev1.TargetPod, "seesall"), []string{"pods/shop", "nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := webhooktest.MayTrace("pods/shop", "nodes")
			resp := traceHandler(webhooktest.Reader(t, webhooktest.Objects()...), r).Handle(t.Context(), webhooktest.Request(t, admissionv1.Create, "Trace", "shop", newTrace("shop", traceSpec(tc.change)), nil))
			if !resp.Allowed || !slices.Equal(r.Asked, tc.want) {
				t.Errorf("allowed: %t after %v, want %v", resp.Allowed, r.Asked, tc.want)
			}
		})
	}
}

// TestTraceWarnings: a Trace that names a container that the Pod template lacks is admitted with a warning.
func TestTraceWarnings(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: webhooktest.Meta("shop", "two")}
	web.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{{Name: "web"}, {Name: "log"}}, InitContainers: []corev1.Container{{Name: "setup"}},
	}
	pod := &corev1.Pod{ObjectMeta: webhooktest.Meta("shop", "debugged"), Spec: corev1.PodSpec{
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
			h := traceHandler(webhooktest.Reader(t, append(webhooktest.Objects(), web.DeepCopy(), pod.DeepCopy())...), webhooktest.MayTrace("pods/shop"))
			resp := h.Handle(t.Context(), webhooktest.Request(t, admissionv1.Create, "Trace", "shop", newTrace("shop", traceSpec(tc.change)), nil))
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

// A user without the right learns nothing about the target's containers.
func TestTraceWarningsAreForThoseWhoMay(t *testing.T) {
	s := traceSpec(func(s *sondev1.TraceSpec) { s.Containers = []string{"guess"} })
	resp := traceHandler(webhooktest.Reader(t, webhooktest.Objects()...), webhooktest.MayTrace()).Handle(t.Context(), webhooktest.Request(t, admissionv1.Create, "Trace", "shop", newTrace("shop", s), nil))
	if resp.Allowed || len(resp.Warnings) > 0 {
		t.Errorf("allowed: %t, warnings %v", resp.Allowed, resp.Warnings)
	}
}

// TestTraceGateInProtectedNamespace: a gate that no Pod would ever get is refused at once.
func TestTraceGateInProtectedNamespace(t *testing.T) {
	for in, want := range map[string]bool{"shop": true, "kube-system": false, "openshift-dns": false, webhooktest.OperatorNamespace: false} {
		trace := newTrace("hub", traceSpec(func(s *sondev1.TraceSpec) { s.TargetNamespace, s.Gate = in, &sondev1.TraceGate{Enabled: true} }))
		checks := TraceChecks{OperatorNamespace: webhooktest.OperatorNamespace}
		if err := checks.Shape(trace); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "leave gate out") {
			t.Errorf("%s: %v", in, err)
		}
		trace.Spec.Gate.Enabled = false
		if err := checks.Shape(trace); err != nil {
			t.Errorf("%s, disabled: %v", in, err)
		}
	}
}
