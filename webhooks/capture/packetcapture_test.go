package capture

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/filterpool"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// filters refuses texts with "bad" in them and is broken by "boom".
type filters struct{ compiled []string }

func (f *filters) Compile(_ context.Context, _, expression string, link pcapfilter.LinkType, snapLen int) (bpfprog.Program, error) {
	f.compiled = append(f.compiled, expression)
	switch {
	case link != pcapfilter.LinkEthernet || snapLen < 0 || snapLen > pcapfilter.MaxSnapLen:
		return nil, errors.New("unknown link type")
	case strings.Contains(expression, "bad"):
		return nil, &pcapfilter.SyntaxError{Expression: expression, Message: "syntax error: see pcap-filter(7)"}
	case strings.Contains(expression, "boom"):
		return nil, errors.New("sandbox broken")
	}
	return nil, nil
}

func spec(change func(*sondev1.PacketCaptureSpec)) sondev1.PacketCaptureSpec {
	s := sondev1.PacketCaptureSpec{TargetDeployment: "web", Duration: "30", RetainFor: "1h", SnapLength: 262144, MaxBytes: 1 << 30}
	if change != nil {
		change(&s)
	}
	return s
}

func captureHandler(live client.Reader, r access.Reviews) *Handler {
	return &Handler{
		Quota: &Quota{},
		Kind:  kind.PacketCapture, Checks: &PacketCaptureChecks{Filters: &filters{}},
		Live: live, Cache: live, Reviews: r, Key: webhooktest.Key, OperatorNamespace: webhooktest.OperatorNamespace, Clock: webhooktest.Clock(),
	}
}

func capture(s sondev1.PacketCaptureSpec) *sondev1.PacketCapture {
	return &sondev1.PacketCapture{ObjectMeta: webhooktest.Meta("shop", "mine"), Spec: s}
}

func TestPacketCaptureOfAnotherTypeIsRefusedWithWords(t *testing.T) {
	h := captureHandler(webhooktest.Reader(t, webhooktest.Objects()...), webhooktest.May("pods/shop"))
	for name, c := range map[string]struct{ raw, remedy string }{
		"a number for a duration": {`{"spec":{"targetDeployment":"web","duration":30,"retainFor":"1h"}}`, "put the value in quotes"},
		"a text for a number":     {`{"spec":{"targetDeployment":"web","duration":"30","maxPackets":"10"}}`, "write a number, without quotes"},
		"a list for a spec":       {`{"spec":[]}`, "has fields of its own"},
		"a text for a list":       {`{"spec":{"interfaces":"eth0"}}`, "write each entry after a hyphen"},
		"noise":                   {`{`, "put names and durations in quotes"},
	} {
		t.Run(name, func(t *testing.T) {
			req := webhooktest.Request(t, admissionv1.Create, "PacketCapture", "shop", nil, nil)
			req.Object = runtime.RawExtension{Raw: []byte(c.raw)}
			webhooktest.Refused(t, h.Handle(t.Context(), req), webhooktest.Invalid, c.remedy)
		})
	}
}

func TestPacketCaptureStampOfAUserIsOverwritten(t *testing.T) {
	h := captureHandler(webhooktest.Reader(t, webhooktest.Objects()...), webhooktest.May("pods/shop"))
	pc := capture(spec(nil))
	pc.Annotations = map[string]string{"note": "mine", sondev1.AnnotationRequester: `{"v":1}`, sondev1.AnnotationStamp: "00"}
	req := webhooktest.Request(t, admissionv1.Create, "PacketCapture", "shop", pc, nil)
	var got sondev1.PacketCapture
	webhooktest.Patched(t, req, h.Handle(t.Context(), req), &got)
	if _, err := stamp.Verify(webhooktest.Key, "shop", stamp.KindPacketCapture, got.Spec, got.Annotations, webhooktest.Now); err != nil {
		t.Error(err)
	}
	if got.Annotations["note"] != "mine" || len(got.Annotations) != 3 {
		t.Errorf("annotations %v", got.Annotations)
	}
}

// The webhook keeps fields that its types do not know, and labels of users.
func TestPatchTouchesAnnotationsOnly(t *testing.T) {
	h := captureHandler(webhooktest.Reader(t, webhooktest.Objects()...), webhooktest.May("pods/shop"))
	req := webhooktest.Request(t, admissionv1.Create, "PacketCapture", "shop", nil, nil)
	req.Object.Raw = []byte(`{"metadata":{"name":"mine","annotations":{}},"spec":{"targetDeployment":"web","duration":"30","retainFor":"1h","later":{"x":1}}}`)
	var got map[string]any
	webhooktest.Patched(t, req, h.Handle(t.Context(), req), &got)
	want := map[string]any{"targetDeployment": "web", "duration": "30", "retainFor": "1h", "later": map[string]any{"x": 1.0}}
	if diff := cmp.Diff(want, got["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestPacketCaptureUpdate(t *testing.T) {
	stamped := capture(spec(nil))
	stamped.Annotations = map[string]string{sondev1.AnnotationRequester: "r", sondev1.AnnotationStamp: "s", sondev1.AnnotationStoppedBy: "b", "note": "mine"}
	for name, tc := range map[string]struct {
		change func(*sondev1.PacketCapture)
		want   string
	}{
		"other annotation":    {change: func(pc *sondev1.PacketCapture) { delete(pc.Annotations, "note") }},
		"a spec for the CRD":  {change: func(pc *sondev1.PacketCapture) { pc.Spec.Filter = "udp" }},
		"stamp changed":       {change: func(pc *sondev1.PacketCapture) { pc.Annotations[sondev1.AnnotationStamp] = "t" }, want: sondev1.AnnotationStamp},
		"stamp emptied":       {change: func(pc *sondev1.PacketCapture) { pc.Annotations[sondev1.AnnotationStamp] = "" }, want: sondev1.AnnotationStamp},
		"requester changed":   {change: func(pc *sondev1.PacketCapture) { pc.Annotations[sondev1.AnnotationRequester] = "q" }, want: sondev1.AnnotationRequester},
		"stopper changed":     {change: func(pc *sondev1.PacketCapture) { pc.Annotations[sondev1.AnnotationStoppedBy] = "c" }, want: sondev1.AnnotationStoppedBy},
		"annotations removed": {change: func(pc *sondev1.PacketCapture) { pc.Annotations = nil }, want: "leave it as it is"},
	} {
		t.Run(name, func(t *testing.T) {
			r := webhooktest.May()
			changed := stamped.DeepCopy()
			tc.change(changed)
			resp := captureHandler(webhooktest.Reader(t), r).Handle(t.Context(), webhooktest.Request(t, admissionv1.Update, "PacketCapture", "shop", changed, stamped))
			if tc.want != "" {
				webhooktest.Refused(t, resp, webhooktest.Forbidden, tc.want, "create a new PacketCapture")
				return
			}
			if !resp.Allowed || len(resp.Patches) != 0 || len(r.Asked) != 0 {
				t.Errorf("got %+v after %v, want it allowed as it is", resp, r.Asked)
			}
		})
	}
}

// TestStopNamesItsUser: whatever a user writes, a stop has the name and the signature that the webhook gives it.
func TestStopNamesItsUser(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"none":          nil,
		"the stamp":     {sondev1.AnnotationRequester: "r", sondev1.AnnotationStamp: "s"},
		"another's":     {sondev1.AnnotationStoppedBy: stamp.SignStop(webhooktest.Key, kind.PacketCapture.Name, "another", "eve")},
		"one's own too": {sondev1.AnnotationStoppedBy: "eve", "note": "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			running := capture(spec(nil))
			running.UID, running.Annotations = "u-1", maps.Clone(annotations)
			delete(running.Annotations, sondev1.AnnotationStoppedBy)
			stopped := running.DeepCopy()
			stopped.Spec.Stop, stopped.Annotations = true, annotations
			req := webhooktest.Request(t, admissionv1.Update, "PacketCapture", "shop", stopped, running)
			resp := captureHandler(webhooktest.Reader(t), webhooktest.May()).Handle(t.Context(), req)
			if !resp.Allowed {
				t.Fatalf("refused: %s", resp.Result.Message)
			}
			var got sondev1.PacketCapture
			webhooktest.Patched(t, req, resp, &got)
			if who := stamp.StoppedBy(webhooktest.Key, &got); who != "alice" || !got.Spec.Stop || len(got.Annotations) != len(running.Annotations)+1 {
				t.Errorf("stopped by %q: %v", who, got.Annotations)
			}
		})
	}
}

func TestAStampIsNotAddedLater(t *testing.T) {
	plain, claimed := capture(spec(nil)), capture(spec(nil))
	claimed.Annotations = map[string]string{sondev1.AnnotationStamp: "s"}
	resp := captureHandler(webhooktest.Reader(t), webhooktest.May()).Handle(t.Context(), webhooktest.Request(t, admissionv1.Update, "PacketCapture", "shop", claimed, plain))
	webhooktest.Refused(t, resp, webhooktest.Forbidden, sondev1.AnnotationStamp)
}

// TestJobIDIsComparedInTheCache: no list of captures is read from the API server, as their users decide how large it is.
// The cache makes no copies.
func TestJobIDIsComparedInTheCache(t *testing.T) {
	objects := append(webhooktest.Objects(), otherCaptures()...)
	list := func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		o := (&client.ListOptions{}).ApplyOptions(opts)
		if o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy || o.Namespace != "shop" {
			t.Errorf("a list of namespace %q, or with copies", o.Namespace)
		}
		return c.List(ctx, list, opts...)
	}
	h := captureHandler(interceptor.NewClient(webhooktest.Reader(t, objects...).(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			t.Error("a list from the API server")
			return nil
		},
	}), webhooktest.May("pods/shop"))
	h.Cache = interceptor.NewClient(webhooktest.Reader(t, objects...).(client.WithWatch), interceptor.Funcs{List: list})
	pc := capture(spec(func(s *sondev1.PacketCaptureSpec) { s.JobID = "busy" }))
	resp := h.Handle(t.Context(), webhooktest.Request(t, admissionv1.Create, "PacketCapture", "shop", pc, nil))
	webhooktest.Refused(t, resp, webhooktest.Invalid, "jobId busy is in use by PacketCapture running")
}

func TestPacketCaptureFailsClosed(t *testing.T) {
	broken := errors.New("API server away")
	for name, funcs := range map[string]interceptor.Funcs{
		"get": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return broken
		}},
		"list": {List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return broken }},
	} {
		t.Run(name, func(t *testing.T) {
			live := fake.NewClientBuilder().WithScheme(webhooktest.Scheme(t)).WithObjects(webhooktest.Objects()...).WithInterceptorFuncs(funcs).Build()
			pc := capture(spec(func(s *sondev1.PacketCaptureSpec) { s.JobID = "aaaa" }))
			resp := captureHandler(live, webhooktest.May("pods/shop")).Handle(t.Context(), webhooktest.Request(t, admissionv1.Create, "PacketCapture", "shop", pc, nil))
			webhooktest.Refused(t, resp, webhooktest.Failed, "API server away", "try again")
		})
	}
}

func TestTheWebhookWritesNothing(t *testing.T) {
	wrote := func() error { t.Error("the webhook writes"); return errors.New("must not write") }
	live := fake.NewClientBuilder().WithScheme(webhooktest.Scheme(t)).WithObjects(webhooktest.Objects()...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return wrote() },
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return wrote() },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return wrote()
		},
	}).Build()
	req := webhooktest.Request(t, admissionv1.Create, "PacketCapture", "shop", capture(spec(nil)), nil)
	dry := true
	req.DryRun = &dry
	if resp := captureHandler(live, webhooktest.May("pods/shop")).Handle(t.Context(), req); !resp.Allowed {
		t.Errorf("dry run refused: %s", resp.Result.Message)
	}
}

// The messages of the real compiler reach the user.
func TestPacketCaptureFilterIsCompiled(t *testing.T) {
	compiler, err := pcapfilter.New(pcapfilter.Most)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ filter, want string }{
		"good":       {filter: "tcp port 80 and host 10.0.0.1"},
		"none":       {filter: ""},
		"a typo":     {filter: "tcp prot 80", want: "syntax error"},
		"a DNS name": {filter: "host www.example.org", want: "www.example.org"},
		"nested":     {filter: strings.Repeat("(", 4000) + "tcp", want: "filter"},
	} {
		t.Run(name, func(t *testing.T) {
			h := captureHandler(webhooktest.Reader(t, webhooktest.Objects()...), webhooktest.May("pods/shop"))
			h.Checks = &PacketCaptureChecks{Filters: inProcess{compiler}}
			pc := capture(spec(func(s *sondev1.PacketCaptureSpec) { s.Filter = tc.filter }))
			resp := h.Handle(t.Context(), webhooktest.Request(t, admissionv1.Create, "PacketCapture", "shop", pc, nil))
			if tc.want != "" {
				webhooktest.Refused(t, resp, webhooktest.Invalid, tc.want)
			} else if !resp.Allowed {
				t.Errorf("refused: %s", resp.Result.Message)
			}
		})
	}
}

// inProcess compiles with libpcap in the test's own process, for all users alike.
type inProcess struct{ *pcapfilter.Compiler }

func (c inProcess) Compile(ctx context.Context, _, expression string, link pcapfilter.LinkType, snapLen int) (bpfprog.Program, error) {
	return c.Compiler.Compile(ctx, expression, link, snapLen)
}

// busyFilters refuses the filters of a user, because too many wait.
type busyFilters struct{ user string }

func (f busyFilters) Compile(_ context.Context, requester, _ string, _ pcapfilter.LinkType, _ int) (bpfprog.Program, error) {
	if requester == f.user {
		return nil, &filterpool.BusyError{}
	}
	return nil, errors.New("compiled for " + requester)
}

// TestTooManyFilters: filters are compiled at the requester's cost, who may try again when too many wait.
func TestTooManyFilters(t *testing.T) {
	h := captureHandler(webhooktest.Reader(t, webhooktest.Objects()...), webhooktest.May("pods/shop"))
	req := webhooktest.Request(t, admissionv1.Create, "PacketCapture", "shop", capture(spec(nil)), nil)
	h.Checks = &PacketCaptureChecks{Filters: busyFilters{user: req.UserInfo.Username}}
	resp := h.Handle(t.Context(), req)
	webhooktest.Refused(t, resp, http.StatusTooManyRequests)
	if resp.Result.Reason != metav1.StatusReasonTooManyRequests {
		t.Errorf("reason %s, which clients do not retry", resp.Result.Reason)
	}
}
