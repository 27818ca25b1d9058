package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/claim"
	"github.com/sonde-operator/sonde/internal/operator/fewreads"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// unstamped is the name of a FluentPVC without a valid stamp.
const unstamped = "unstamped"

func fluentPVC(name string) *sondev1.FluentPVC {
	return &sondev1.FluentPVC{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: sondev1.FluentPVCSpec{
			PVCVolumeName: "fluent-pvc", PVCVolumeMountPath: "/mnt/fluent-pvc", MaxBindings: 2,
			SidecarContainerTemplate: corev1.Container{Name: "sidecar", Image: "fluentd:1"},
		},
	}
}

func webPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Annotations: map[string]string{sondev1.KeyFluentPVC: "logs"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}, ServiceAccountName: "default"},
	}
}

func binding(name, of string) *sondev1.FluentPVCBinding {
	b := &sondev1.FluentPVCBinding{ObjectMeta: webhooktest.Meta("shop", name)}
	b.Spec.FluentPVC.Name, b.Spec.Template = of, fluentPVC(of).Spec
	return b
}

// rights are the namespaces that the manager may write in.
type rights struct {
	namespaces string
	err        error
	panics     bool
}

func (r rights) Allowed(_ context.Context, namespace string) (bool, error) {
	if r.panics {
		panic("out of order")
	}
	return strings.Contains(r.namespaces, namespace), r.err
}

// world is what the handler reads.
type world struct {
	cached, live []client.Object
	cacheFuncs   interceptor.Funcs
	liveFuncs    interceptor.Funcs
	rights       rights
}

func newWorld() *world {
	return &world{
		cached: []client.Object{fluentPVC("logs"), fluentPVC(unstamped)},
		live: []client.Object{
			webhooktest.Namespace("shop", nil), webhooktest.Namespace("hub", nil), webhooktest.Namespace("closed", map[string]string{sondev1.LabelOptOut: "true"}),
		},
		rights: rights{namespaces: "shop closed"},
	}
}

func (w *world) handler(t *testing.T) *Handler {
	t.Helper()
	reader := func(objects []client.Object, funcs interceptor.Funcs) client.Client {
		return fake.NewClientBuilder().WithScheme(webhooktest.Scheme(t)).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
	}
	cached := reader(w.cached, w.cacheFuncs)
	return &Handler{
		Cache: cached, Live: reader(w.live, w.liveFuncs), Rights: w.rights, Bindings: NewBindings(cached, webhooktest.Clock()),
		Verify: func(f *sondev1.FluentPVC) error {
			if f.Name == unstamped {
				return errors.New("no stamp: create it again")
			}
			return nil
		},
		Key: webhooktest.Key, OperatorNamespace: webhooktest.OperatorNamespace,
	}
}

func request(t *testing.T, pod any) webhook.AdmissionRequest {
	t.Helper()
	return webhooktest.Request(t, admissionv1.Create, "Pod", "shop", pod, nil)
}

// admitted returns the Pod as it is admitted, with the claim that it was given.
func admitted(t *testing.T, req webhook.AdmissionRequest, resp webhook.AdmissionResponse) (*corev1.Pod, string) {
	t.Helper()
	if !resp.Allowed {
		t.Fatalf("refused: %v", resp.Result)
	}
	pod := &corev1.Pod{}
	if len(resp.Patches) == 0 {
		if err := json.Unmarshal(req.Object.Raw, pod); err != nil {
			t.Fatal(err)
		}
	} else {
		webhooktest.Patched(t, req, resp, pod)
	}
	ref, ok := claim.Parse(webhooktest.Key, req.Namespace, pod.Annotations[sondev1.AnnotationClaim])
	if !ok || ref.FluentPVC != "logs" {
		t.Fatalf("annotation %q", pod.Annotations[sondev1.AnnotationClaim])
	}
	if v := pod.Spec.Volumes; len(v) != 1 || v[0].PersistentVolumeClaim == nil || v[0].PersistentVolumeClaim.ClaimName != ref.Claim {
		t.Fatalf("volumes %v, want one of claim %s", v, ref.Claim)
	}
	return pod, ref.Claim
}

func TestHandle(t *testing.T) {
	pod, w := webPod(), newWorld()
	req := request(t, pod)
	got, claimName := admitted(t, req, w.handler(t).Handle(t.Context(), req))
	mounts := []corev1.VolumeMount{{Name: "fluent-pvc", MountPath: "/mnt/fluent-pvc"}}
	want := pod.DeepCopy()
	want.Spec.Containers[0].VolumeMounts = mounts
	want.Spec.Containers = append(want.Spec.Containers, corev1.Container{Name: "sidecar", Image: "fluentd:1", VolumeMounts: mounts})
	want.Annotations[sondev1.AnnotationClaim] = claim.Ref{FluentPVC: "logs", Claim: claimName}.Sign(webhooktest.Key, "shop")
	want.Spec.Volumes = got.Spec.Volumes
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAllowed(t *testing.T) {
	tests := map[string]struct {
		pod     func(*corev1.Pod)
		request func(*webhook.AdmissionRequest)
	}{
		"no FluentPVC": {pod: func(p *corev1.Pod) { p.Annotations = nil }},
		"empty name":   {pod: func(p *corev1.Pod) { p.Annotations[sondev1.KeyFluentPVC] = "" }},
		"cluster's":    {request: func(r *webhook.AdmissionRequest) { r.Namespace = "kube-system" }},
		"OpenShift's":  {request: func(r *webhook.AdmissionRequest) { r.Namespace = "openshift-dns" }},
		"operator's":   {request: func(r *webhook.AdmissionRequest) { r.Namespace = webhooktest.OperatorNamespace }},
		"a change":     {request: func(r *webhook.AdmissionRequest) { r.Operation = admissionv1.Update }},
		"subresource":  {request: func(r *webhook.AdmissionRequest) { r.SubResource = "eviction" }},
		"another kind": {request: func(r *webhook.AdmissionRequest) { r.Kind.Kind = "ConfigMap" }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod, w := webPod(), newWorld()
			if tc.pod != nil {
				tc.pod(pod)
			}
			req := request(t, pod)
			if tc.request != nil {
				tc.request(&req)
			}
			w.rights.panics = true
			if resp := w.handler(t).Handle(t.Context(), req); !resp.Allowed || len(resp.Patches) != 0 {
				t.Errorf("answer %v, want the Pod unchanged", resp)
			}
		})
	}
}

// TestClaimTooLargeToRead: a claim that is too large to read exists, so a copied annotation names it in vain.
func TestClaimTooLargeToRead(t *testing.T) {
	pod, w := webPod(), newWorld()
	pod.Annotations[sondev1.AnnotationClaim] = claim.Ref{FluentPVC: "logs", Claim: "logs-1"}.Sign(webhooktest.Key, "shop")
	w.liveFuncs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, ok := o.(*metav1.PartialObjectMetadata); ok {
			return fmt.Errorf("get: %w", fewreads.ErrTooLarge)
		}
		return c.Get(ctx, key, o, opts...)
	}
	req := request(t, pod)
	if _, c := admitted(t, req, w.handler(t).Handle(t.Context(), req)); c == "logs-1" {
		t.Error("the Pod keeps the name of a claim that exists")
	}
}

func TestRefused(t *testing.T) {
	boom := errors.New("no connection")
	// breaks returns the functions of a reader that cannot read this kind.
	breaks := func(kind string) interceptor.Funcs {
		return interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if strings.Contains(fmt.Sprintf("%T", o), kind) {
					return boom
				}
				return c.Get(ctx, key, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				if strings.Contains(fmt.Sprintf("%T", l), kind) {
					return boom
				}
				return c.List(ctx, l, opts...)
			},
		}
	}
	signed := func(p *corev1.Pod) {
		p.Annotations[sondev1.AnnotationClaim] = claim.Ref{FluentPVC: "logs", Claim: "logs-1"}.Sign(webhooktest.Key, "shop")
	}
	paused := func(w *world) {
		w.live = append(w.live, &corev1.ConfigMap{ObjectMeta: webhooktest.Meta(webhooktest.OperatorNamespace, pause.ConfigMapName), Data: map[string]string{pause.Key: "true"}})
	}
	names := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations[sondev1.KeyFluentPVC] = name }
	}
	tests := map[string]struct {
		pod     func(*corev1.Pod)
		request func(*webhook.AdmissionRequest)
		world   func(*world)
		code    int32
		want    []string
	}{
		"no Pod": {request: func(r *webhook.AdmissionRequest) {
			r.Object.Raw = []byte(`{"metadata":{"annotations":{"monitoring.openshift.tpg/fluent-pvc-name":"logs"}},"spec":{"containers":7}}`)
		}, code: webhooktest.Invalid, want: []string{"read the resource"}},
		"nothing":          {request: func(r *webhook.AdmissionRequest) { r.Object.Raw = nil }, code: webhooktest.Invalid, want: []string{"read the resource"}},
		"two names":        {pod: func(p *corev1.Pod) { p.Labels = map[string]string{sondev1.KeyFluentPVC: "dumps"} }, code: webhooktest.Invalid, want: []string{"names two FluentPVCs", "remove one"}},
		"not found":        {pod: names("dumps"), code: webhooktest.Invalid, want: []string{`FluentPVC "dumps" not found`, "kubectl get fluentpvcs"}},
		"not a name":       {pod: names("../" + strings.Repeat("é", 5000)), code: webhooktest.Invalid, want: []string{"not found", "..."}},
		"without a stamp":  {pod: names(unstamped), code: webhooktest.Forbidden, want: []string{"FluentPVC unstamped cannot be used: no stamp: create it again"}},
		"closed namespace": {request: func(r *webhook.AdmissionRequest) { r.Namespace = "closed" }, code: webhooktest.Forbidden, want: []string{"closed namespace closed", sondev1.LabelOptOut}},
		"paused":           {world: paused, code: webhooktest.Forbidden, want: []string{"paused", "ConfigMap sonde-system/sonde-config", `"false"`}},
		"without the right": {
			request: func(r *webhook.AdmissionRequest) { r.Namespace = "hub" }, code: webhooktest.Forbidden,
			want: []string{
				`"kubectl sonde fluentpvc allow -n hub"`,
				`"kubectl create rolebinding sonde-fluentpvc -n hub --clusterrole=sonde-fluentpvc --serviceaccount=sonde-system:sonde-manager"`,
			},
		},
		"as many bindings as allowed": {
			world: func(w *world) { w.cached = append(w.cached, binding("logs-1", "logs"), binding("logs-2", "logs")) },
			code:  webhooktest.Forbidden, want: []string{"has 2 volumes in namespace shop", "spec.maxBindings", "kubectl get fluentpvcbindings -n shop"},
		},
		"a name in use": {pod: func(p *corev1.Pod) { p.Spec.Containers[0].Name = "sidecar" }, code: webhooktest.Invalid, want: []string{`FluentPVC logs cannot be added to this Pod: container name "sidecar"`}},
		"a static Pod":  {pod: func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "x" }, code: webhooktest.Invalid, want: []string{"static Pod"}},
		"cache fails":   {world: func(w *world) { w.cacheFuncs = breaks("FluentPVC") }, code: webhooktest.Failed, want: []string{"get FluentPVC logs: no connection: try again"}},
		"not cached, API server fails": {
			world: func(w *world) { w.cached, w.liveFuncs = nil, breaks("FluentPVC") }, code: webhooktest.Failed, want: []string{"get FluentPVC logs: no connection"},
		},
		"no namespace":         {world: func(w *world) { w.liveFuncs = breaks("Namespace") }, code: webhooktest.Failed, want: []string{"get namespace shop: no connection"}},
		"no pause":             {world: func(w *world) { w.liveFuncs = breaks("ConfigMap") }, code: webhooktest.Failed, want: []string{"no connection"}},
		"no review":            {world: func(w *world) { w.rights.err = boom }, code: webhooktest.Failed, want: []string{"no connection"}},
		"no count":             {world: func(w *world) { w.cacheFuncs = breaks("BindingList") }, code: webhooktest.Failed, want: []string{"count the bindings of namespace shop: no connection"}},
		"no binding":           {pod: signed, world: func(w *world) { w.liveFuncs = breaks("FluentPVCBinding") }, code: webhooktest.Failed, want: []string{"get FluentPVCBinding shop/logs-1: no connection"}},
		"no claim":             {pod: signed, world: func(w *world) { w.liveFuncs = breaks("PartialObjectMetadata") }, code: webhooktest.Failed, want: []string{"get PersistentVolumeClaim shop/logs-1: no connection"}},
		"panic":                {world: func(w *world) { w.rights.panics = true }, code: webhooktest.Failed, want: []string{"panic: out of order"}},
		"an error of a length": {world: func(w *world) { w.rights.err = errors.New(strings.Repeat("é", 5000)) }, code: webhooktest.Failed, want: []string{"é"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod, w := webPod(), newWorld()
			if tc.pod != nil {
				tc.pod(pod)
			}
			if tc.world != nil {
				tc.world(w)
			}
			req := request(t, pod)
			if tc.request != nil {
				tc.request(&req)
			}
			webhooktest.Refused(t, w.handler(t).Handle(t.Context(), req), tc.code, tc.want...)
		})
	}
}

// TestNewFluentPVC checks that a FluentPVC is found that the cache does not have yet.
func TestNewFluentPVC(t *testing.T) {
	w, req := newWorld(), request(t, webPod())
	w.cached, w.live = nil, append(w.live, fluentPVC("logs"))
	admitted(t, req, w.handler(t).Handle(t.Context(), req))
}

// TestClaim checks which Pods keep the claim that their annotation names.
func TestClaim(t *testing.T) {
	const old = "logs-01234567-abcdefghij"
	mine := claim.Ref{FluentPVC: "logs", Claim: old}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: webhooktest.Meta("shop", old)}
	tests := map[string]struct {
		annotation string
		live       []client.Object
		kept       bool
	}{
		"re-invocation":         {annotation: mine.Sign(webhooktest.Key, "shop"), kept: true},
		"another's binding":     {annotation: mine.Sign(webhooktest.Key, "shop"), live: []client.Object{binding("logs-9", "logs")}, kept: true},
		"copied, with binding":  {annotation: mine.Sign(webhooktest.Key, "shop"), live: []client.Object{binding(old, "logs")}},
		"restored, with claim":  {annotation: mine.Sign(webhooktest.Key, "shop"), live: []client.Object{pvc}},
		"from another install":  {annotation: mine.Sign([]byte("other key"), "shop")},
		"from another place":    {annotation: mine.Sign(webhooktest.Key, "bank")},
		"of another FluentPVC":  {annotation: claim.Ref{FluentPVC: "dumps", Claim: old}.Sign(webhooktest.Key, "shop")},
		"forged":                {annotation: "logs/" + old + "/00"},
		"empty":                 {annotation: ""},
		"forged, of many bytes": {annotation: strings.Repeat("/x", 50000)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w, first := newWorld(), request(t, webPod())
			pod, given := admitted(t, first, w.handler(t).Handle(t.Context(), first))
			pod.Annotations[sondev1.AnnotationClaim] = tc.annotation
			pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = old
			w.live = append(w.live, tc.live...)
			req := request(t, pod)
			resp := w.handler(t).Handle(t.Context(), req)
			_, got := admitted(t, req, resp)
			if (got == old) != tc.kept || got == given {
				t.Errorf("claim %s, kept: %t, want %t", got, got == old, tc.kept)
			}
			if tc.kept && len(resp.Patches) != 0 {
				t.Errorf("a Pod that needs no change is patched: %v", resp.Patches)
			}
		})
	}
}

// TestCopyWithBinding checks that a copy loses what the original had by a template that has changed since.
func TestCopyWithBinding(t *testing.T) {
	w, first := newWorld(), request(t, webPod())
	pod, given := admitted(t, first, w.handler(t).Handle(t.Context(), first))
	w.live = append(w.live, binding(given, "logs"))
	w.cached[0].(*sondev1.FluentPVC).Spec.SidecarContainerTemplate.Name = "shipper"
	req := request(t, pod)
	got, now := admitted(t, req, w.handler(t).Handle(t.Context(), req))
	var names []string
	for _, c := range got.Spec.Containers {
		names = append(names, c.Name)
	}
	if diff := cmp.Diff([]string{"web", "shipper"}, names); diff != "" || now == given {
		t.Errorf("claim %s after %s; containers (-want +got):\n%s", now, given, diff)
	}
}

// TestNothingIsWritten checks that neither a dry run nor a refusal nor an admission writes.
func TestNothingIsWritten(t *testing.T) {
	w := newWorld()
	wrote := func() error { return apierrors.NewInternalError(errors.New("a write")) }
	funcs := interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return wrote() },
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return wrote() },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return wrote()
		},
	}
	w.cacheFuncs, w.liveFuncs = funcs, funcs
	h, req := w.handler(t), request(t, webPod())
	req.DryRun = new(true)
	claims := map[string]bool{}
	for range 100 { // more than maxBindings
		_, c := admitted(t, req, h.Handle(t.Context(), req))
		claims[c] = true
	}
	if len(claims) != 100 {
		t.Errorf("%d claims of 100 Pods", len(claims))
	}
}

// TestUnknownFieldsStay checks that fields of a later Kubernetes stay.
func TestUnknownFieldsStay(t *testing.T) {
	tomorrow := func(fields map[string]any) map[string]any {
		o := map[string]any{"ofTomorrow": "x"}
		maps.Copy(o, fields)
		return o
	}
	pod := tomorrow(map[string]any{
		"metadata": tomorrow(map[string]any{"labels": map[string]any{sondev1.KeyFluentPVCSource: "logs"}, "annotations": map[string]any{}}),
		"spec": tomorrow(map[string]any{
			"containers":     []any{tomorrow(map[string]any{"name": "web", "volumeMounts": nil})},
			"initContainers": []any{tomorrow(map[string]any{"name": "proxy", "env": []any{}})},
			"volumes":        []any{},
		}),
	})
	req := request(t, pod)
	w := newWorld()
	w.cached[0].(*sondev1.FluentPVC).Spec.SidecarMode = sondev1.SidecarNative
	resp := w.handler(t).Handle(t.Context(), req)
	var got map[string]any
	webhooktest.Patched(t, req, resp, &got)
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(raw), "ofTomorrow"); n != 5 {
		t.Errorf("%d of 5 unknown fields: %s", n, raw)
	}
	inits := got["spec"].(map[string]any)["initContainers"].([]any)
	if len(inits) != 2 || inits[0].(map[string]any)["ofTomorrow"] != nil || inits[1].(map[string]any)["ofTomorrow"] != "x" {
		t.Errorf("init containers %v", inits)
	}
}
