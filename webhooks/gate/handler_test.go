package gate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
	"github.com/sonde-operator/sonde/webhooks/admission"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// gates is one Trace that gates the Pods labelled app=web of namespace shop.
type gates struct {
	err     error
	hangs   bool
	panics  bool
	options gate.Options
}

func (g gates) Find(ctx context.Context, namespace string, pod *metav1.ObjectMeta) (gate.Options, bool, error) {
	switch {
	case g.panics:
		panic("out of order")
	case g.hangs:
		<-ctx.Done()
		return gate.Options{}, false, ctx.Err()
	}
	return g.options, namespace == "shop" && pod.Labels["app"] == "web", g.err
}

func oneGate() gates {
	return gates{options: gate.Options{
		Config: gateconfig.Config{Timeout: 30 * time.Second, OnTimeout: gateconfig.Proceed, Until: webhooktest.Now},
		Image:  "sonde:test", TraceNamespace: "hub", TraceName: "tr", TraceUID: "t1",
	}}
}

func webPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
}

func podRequest(t *testing.T, pod any) webhook.AdmissionRequest {
	t.Helper()
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return webhook.AdmissionRequest{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "r", Operation: admissionv1.Create, Namespace: "shop", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Object: runtime.RawExtension{Raw: raw},
	}}
}

// admittedPod returns the Pod as it is admitted.
func admittedPod(t *testing.T, req webhook.AdmissionRequest, resp webhook.AdmissionResponse) []byte {
	t.Helper()
	if err := resp.Complete(req); err != nil {
		t.Fatal(err)
	}
	if !resp.Allowed {
		t.Fatalf("refused: %v", resp.Result)
	}
	if len(resp.Patch) == 0 {
		return req.Object.Raw
	}
	if resp.PatchType == nil || *resp.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Fatalf("type of the patch: %v", resp.PatchType)
	}
	p, err := jsonpatch.DecodePatch(resp.Patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := p.Apply(req.Object.Raw)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

func TestGate(t *testing.T) {
	tests := map[string]struct {
		pod     func(*corev1.Pod)
		request func(*webhook.AdmissionRequest)
		gates   func(*gates)
		// want is the gate's action if no tracer comes; empty without a gate.
		want gateconfig.OnTimeout
		// wantOpen is in the warning of the webhook that fails open, wantClosed in the refusal of the other.
		wantOpen, wantClosed string
	}{
		"gated":           {want: gateconfig.Proceed},
		"required":        {pod: func(p *corev1.Pod) { p.Labels[sondev1.LabelTraceRequired] = "true" }, want: gateconfig.Fail},
		"required, false": {pod: func(p *corev1.Pod) { p.Labels[sondev1.LabelTraceRequired] = "false" }, want: gateconfig.Proceed},
		"dry run":         {request: func(r *webhook.AdmissionRequest) { r.DryRun = new(true) }, want: gateconfig.Proceed},

		"one of its containers":  {gates: func(g *gates) { g.options.Containers = []string{"proxy", "web"} }, want: gateconfig.Proceed},
		"the gate itself":        {gates: func(g *gates) { g.options.Containers = []string{gateconfig.ContainerName} }, want: gateconfig.Proceed},
		"none of its containers": {gates: func(g *gates) { g.options.Containers = []string{"proxy"} }},
		"required, none of its containers": {
			pod:   func(p *corev1.Pod) { p.Labels[sondev1.LabelTraceRequired] = "true" },
			gates: func(g *gates) { g.options.Containers = []string{"proxy"} }, want: gateconfig.Fail,
		},

		"of no trace":          {pod: func(p *corev1.Pod) { p.Labels["app"] = "db" }},
		"required, no trace":   {pod: func(p *corev1.Pod) { p.Labels = map[string]string{sondev1.LabelTraceRequired: "true"} }},
		"another namespace":    {request: func(r *webhook.AdmissionRequest) { r.Namespace = "bank" }},
		"cluster's namespace":  {request: func(r *webhook.AdmissionRequest) { r.Namespace = "kube-system" }, gates: func(g *gates) { g.panics = true }},
		"OpenShift's":          {request: func(r *webhook.AdmissionRequest) { r.Namespace = "openshift-dns" }, gates: func(g *gates) { g.panics = true }},
		"operator's":           {request: func(r *webhook.AdmissionRequest) { r.Namespace = webhooktest.OperatorNamespace }, gates: func(g *gates) { g.panics = true }},
		"a change":             {request: func(r *webhook.AdmissionRequest) { r.Operation = admissionv1.Update }, gates: func(g *gates) { g.panics = true }},
		"a subresource":        {request: func(r *webhook.AdmissionRequest) { r.SubResource = "eviction" }, gates: func(g *gates) { g.panics = true }},
		"something else":       {request: func(r *webhook.AdmissionRequest) { r.Kind.Kind = "ConfigMap" }, gates: func(g *gates) { g.panics = true }},
		"no Pod":               {request: func(r *webhook.AdmissionRequest) { r.Object.Raw = []byte(`{"spec":{"containers":7}}`) }, wantOpen: "read the Pod", wantClosed: "read the Pod"},
		"nothing":              {request: func(r *webhook.AdmissionRequest) { r.Object.Raw = nil }, wantOpen: "read the Pod", wantClosed: "read the Pod"},
		"lookup fails":         {gates: func(g *gates) { g.err = errors.New("cache not synced") }, wantOpen: "cache not synced", wantClosed: "cache not synced"},
		"lookup hangs":         {gates: func(g *gates) { g.hangs = true }, wantOpen: "deadline exceeded", wantClosed: "deadline exceeded"},
		"lookup panics":        {gates: func(g *gates) { g.panics = true }, wantOpen: "out of order", wantClosed: "out of order"},
		"options of no use":    {gates: func(g *gates) { g.options.Image = "" }, wantOpen: "needs an image", wantClosed: "needs an image"},
		"error of many words":  {gates: func(g *gates) { g.err = errors.New(strings.Repeat("é", 5000)) }, wantOpen: "é", wantClosed: "é"},
		"Windows":              {pod: func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, wantOpen: gate.Windows, wantClosed: gate.Windows},
		"Windows, of no trace": {pod: func(p *corev1.Pod) { p.Spec.OS, p.Labels = &corev1.PodOS{Name: corev1.Windows}, nil }},
	}
	for name, tc := range tests {
		for _, required := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", open", true: ", closed"}[required], func(t *testing.T) {
				t.Parallel()
				pod, g := webPod(), oneGate()
				if tc.pod != nil {
					tc.pod(pod)
				}
				if tc.gates != nil {
					tc.gates(&g)
				}
				req := podRequest(t, pod)
				if tc.request != nil {
					tc.request(&req)
				}
				h := &Handler{Lookup: g, OperatorNamespace: webhooktest.OperatorNamespace, Required: required}
				resp := h.Handle(t.Context(), req)
				if required && tc.wantClosed != "" {
					checkRefused(t, resp, tc.wantClosed)
					return
				}
				checkWarned(t, resp, tc.wantOpen)
				checkGate(t, admittedPod(t, req, resp), tc.want)
			})
		}
	}
}

func checkRefused(t *testing.T, resp webhook.AdmissionResponse, want string) {
	t.Helper()
	if resp.Allowed || resp.Result == nil {
		t.Fatalf("it was admitted: %v", resp)
	}
	for _, s := range []string{want, sondev1.LabelTraceRequired, "remove the label"} {
		if !strings.Contains(resp.Result.Message, s) {
			t.Errorf("%q does not say %q", resp.Result.Message, s)
		}
	}
	if len(resp.Result.Message) > admission.MaxMessageBytes+3 {
		t.Errorf("%d bytes", len(resp.Result.Message))
	}
}

func checkWarned(t *testing.T, resp webhook.AdmissionResponse, want string) {
	t.Helper()
	if !resp.Allowed {
		t.Fatalf("it was refused: %v", resp.Result)
	}
	if (want == "") != (len(resp.Warnings) == 0) || want != "" && !strings.Contains(resp.Warnings[0], want) {
		t.Errorf("warnings %q, want %q", resp.Warnings, want)
	}
	if len(resp.Warnings) > 0 && len(resp.Warnings[0]) > 256 {
		t.Errorf("%d bytes", len(resp.Warnings[0]))
	}
}

func checkGate(t *testing.T, raw []byte, want gateconfig.OnTimeout) {
	t.Helper()
	var pod corev1.Pod
	if len(raw) == 0 || json.Unmarshal(raw, &pod) != nil {
		return // not a Pod, and unchanged
	}
	if want == "" {
		if len(pod.Spec.InitContainers)+len(pod.Annotations) > 0 {
			t.Errorf("it has %v, %v", pod.Spec.InitContainers, pod.Annotations)
		}
		return
	}
	if len(pod.Spec.InitContainers) != 1 || pod.Spec.InitContainers[0].Name != gateconfig.ContainerName {
		t.Fatalf("init containers %v", pod.Spec.InitContainers)
	}
	if args := strings.Join(pod.Spec.InitContainers[0].Args, " "); !strings.Contains(args, "--on-timeout "+string(want)+" ") {
		t.Errorf("arguments %s, want %s", args, want)
	}
	wantAnnotations := map[string]string{sondev1.AnnotationGatedBy: "hub/tr", sondev1.AnnotationGatedByUID: "t1"}
	if diff := cmp.Diff(wantAnnotations, pod.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// Unknown fields stay, and a second call changes nothing.
func TestGateLeavesTheRestAlone(t *testing.T) {
	pod := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "web"}, "ofTomorrow": "a", "annotations": map[string]any{}},
		"spec": map[string]any{
			"ofTomorrow": "b", "containers": []any{map[string]any{"name": "web", "ofTomorrow": "c"}},
			"initContainers": []any{map[string]any{"name": "proxy", "restartPolicy": "Always", "ofTomorrow": "d"}},
		},
	}
	h := &Handler{Lookup: oneGate(), OperatorNamespace: webhooktest.OperatorNamespace}
	req := podRequest(t, pod)
	after := admittedPod(t, req, h.Handle(t.Context(), req))
	if n := strings.Count(string(after), "ofTomorrow"); n != 4 {
		t.Errorf("%d of 4 unknown fields are left: %s", n, after)
	}
	req.Object.Raw = after
	if resp := h.Handle(t.Context(), req); !resp.Allowed || len(resp.Patch)+len(resp.Patches) > 0 {
		t.Errorf("asked again: %s", resp.Patch)
	}
}

// Pods created at the same time all get their gates: the handler has no state.
func TestGateAtTheSameTime(t *testing.T) {
	h := &Handler{Lookup: oneGate(), OperatorNamespace: webhooktest.OperatorNamespace}
	req := podRequest(t, webPod())
	want := string(admittedPod(t, req, h.Handle(t.Context(), req)))
	const many = 100
	got := make(chan []byte, many)
	for range many {
		go func() { got <- h.Handle(context.Background(), req).Patch }()
	}
	for range many {
		var resp webhook.AdmissionResponse
		resp.Allowed, resp.Patch, resp.PatchType = true, <-got, new(admissionv1.PatchTypeJSONPatch)
		if diff := cmp.Diff(want, string(admittedPod(t, req, resp))); diff != "" {
			t.Fatal(diff)
		}
	}
}

// TestUnread: a Pod that the manager does not read starts untraced with a warning, or is refused if it must be traced.
func TestUnread(t *testing.T) {
	req := webhooktest.Request(t, admissionv1.Create, "Pod", "shop", nil, nil)
	err := admission.TooMany("the operator is busy: try again")
	open := (&Handler{}).Unread(t.Context(), req, err)
	if !open.Allowed || len(open.Warnings) != 1 || !strings.Contains(open.Warnings[0], "the Pod starts untraced: the operator is busy") {
		t.Errorf("answer %+v, want the Pod admitted with a warning", open)
	}
	closed := (&Handler{Required: true}).Unread(t.Context(), req, err)
	if closed.Allowed || closed.Result.Code != 429 || !strings.Contains(closed.Result.Message, "the operator is busy") {
		t.Errorf("answer %+v, want a refusal", closed)
	}
}
