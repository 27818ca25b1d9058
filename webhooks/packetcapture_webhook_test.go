package webhooks

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
)

const (
	code403 = http.StatusForbidden
	code422 = http.StatusUnprocessableEntity
	code500 = http.StatusInternalServerError
)

func spec(change func(*sondev1.PacketCaptureSpec)) sondev1.PacketCaptureSpec {
	s := sondev1.PacketCaptureSpec{TargetDeployment: "web", Duration: "30", RetainFor: "1h", SnapLength: 262144, MaxBytes: 1 << 30}
	if change != nil {
		change(&s)
	}
	return s
}

func ref(kind sondev1.TargetKind, name string) func(*sondev1.PacketCaptureSpec) {
	return func(s *sondev1.PacketCaptureSpec) {
		s.TargetDeployment, s.TargetRef = "", &sondev1.TargetReference{Kind: kind, Name: name}
	}
}

func captureHandler(live client.Reader, r access.Reviews) *CaptureHandler {
	return &CaptureHandler{
		Kind: kind.PacketCapture, Checks: &PacketCaptureChecks{Filters: &filters{}},
		Live: live, Reviews: r, Key: testKey, OperatorNamespace: "sonde-system", Clock: fixedClock(),
	}
}

func capture(s sondev1.PacketCaptureSpec) *sondev1.PacketCapture {
	return &sondev1.PacketCapture{ObjectMeta: meta("shop", "mine"), Spec: s}
}

func TestPacketCaptureOfAnotherTypeIsRefusedWithWords(t *testing.T) {
	h := captureHandler(liveReader(t, world()...), may("pods/shop"))
	for name, raw := range map[string]string{
		"a number for a duration": `{"spec":{"targetDeployment":"web","duration":30,"retainFor":"1h"}}`,
		"a text for a number":     `{"spec":{"targetDeployment":"web","duration":"30","maxPackets":"10"}}`,
		"a list for a spec":       `{"spec":[]}`,
		"noise":                   `{`,
	} {
		t.Run(name, func(t *testing.T) {
			req := request(t, admissionv1.Create, "PacketCapture", "shop", nil, nil)
			req.Object = runtime.RawExtension{Raw: []byte(raw)}
			refused(t, h.Handle(t.Context(), req), code422, "quotes")
		})
	}
}

func TestPacketCaptureStampOfAUserIsOverwritten(t *testing.T) {
	h := captureHandler(liveReader(t, world()...), may("pods/shop"))
	pc := capture(spec(nil))
	pc.Annotations = map[string]string{"note": "mine", sondev1.AnnotationRequester: `{"v":1}`, sondev1.AnnotationStamp: "00"}
	req := request(t, admissionv1.Create, "PacketCapture", "shop", pc, nil)
	var got sondev1.PacketCapture
	patched(t, req, h.Handle(t.Context(), req), &got)
	if _, err := stamp.Verify(testKey, "shop", stamp.KindPacketCapture, got.Spec, got.Annotations, now); err != nil {
		t.Error(err)
	}
	if got.Annotations["note"] != "mine" || len(got.Annotations) != 3 {
		t.Errorf("annotations %v", got.Annotations)
	}
}

// What these types do not know, a later version's field or a user's label, is none of the webhook's business.
func TestPatchTouchesAnnotationsOnly(t *testing.T) {
	h := captureHandler(liveReader(t, world()...), may("pods/shop"))
	req := request(t, admissionv1.Create, "PacketCapture", "shop", nil, nil)
	req.Object.Raw = []byte(`{"metadata":{"name":"mine","annotations":{}},"spec":{"targetDeployment":"web","duration":"30","retainFor":"1h","later":{"x":1}}}`)
	var got map[string]any
	patched(t, req, h.Handle(t.Context(), req), &got)
	want := map[string]any{"targetDeployment": "web", "duration": "30", "retainFor": "1h", "later": map[string]any{"x": 1.0}}
	if diff := cmp.Diff(want, got["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestPacketCaptureUpdate(t *testing.T) {
	stamped := capture(spec(nil))
	stamped.Annotations = map[string]string{sondev1.AnnotationRequester: "r", sondev1.AnnotationStamp: "s", "note": "mine"}
	for name, tc := range map[string]struct {
		change func(*sondev1.PacketCapture)
		want   string
	}{
		"stop":                {change: func(pc *sondev1.PacketCapture) { pc.Spec.Stop = true }},
		"other annotation":    {change: func(pc *sondev1.PacketCapture) { delete(pc.Annotations, "note") }},
		"a spec for the CRD":  {change: func(pc *sondev1.PacketCapture) { pc.Spec.Filter = "udp" }},
		"stamp changed":       {change: func(pc *sondev1.PacketCapture) { pc.Annotations[sondev1.AnnotationStamp] = "t" }, want: sondev1.AnnotationStamp},
		"stamp emptied":       {change: func(pc *sondev1.PacketCapture) { pc.Annotations[sondev1.AnnotationStamp] = "" }, want: sondev1.AnnotationStamp},
		"requester changed":   {change: func(pc *sondev1.PacketCapture) { pc.Annotations[sondev1.AnnotationRequester] = "q" }, want: sondev1.AnnotationRequester},
		"annotations removed": {change: func(pc *sondev1.PacketCapture) { pc.Annotations = nil }, want: "leave it as it is"},
	} {
		t.Run(name, func(t *testing.T) {
			r := may()
			changed := stamped.DeepCopy()
			tc.change(changed)
			resp := captureHandler(liveReader(t), r).Handle(t.Context(), request(t, admissionv1.Update, "PacketCapture", "shop", changed, stamped))
			if tc.want != "" {
				refused(t, resp, code403, tc.want, "create a new PacketCapture")
				return
			}
			if !resp.Allowed || len(resp.Patches) != 0 || len(r.asked) != 0 {
				t.Errorf("got %+v after %v, want it allowed as it is", resp, r.asked)
			}
		})
	}
}

func TestAStampIsNotAddedLater(t *testing.T) {
	plain, claimed := capture(spec(nil)), capture(spec(nil))
	claimed.Annotations = map[string]string{sondev1.AnnotationStamp: "s"}
	resp := captureHandler(liveReader(t), may()).Handle(t.Context(), request(t, admissionv1.Update, "PacketCapture", "shop", claimed, plain))
	refused(t, resp, code403, sondev1.AnnotationStamp)
}

// TestJobIDOnALaterPage: captures are read in parts, as many as there are, and one of the first is not forgotten.
func TestJobIDOnALaterPage(t *testing.T) {
	calls := 0
	live := interceptor.NewClient(liveReader(t, append(world(), otherCaptures()...)...).(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			if calls++; o.Limit == 0 {
				t.Error("all captures are read at once")
			}
			if o.Continue == "second" {
				if err := c.List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
					return err
				}
			}
			list.SetContinue(map[string]string{"": "second", "second": "third"}[o.Continue])
			return nil
		},
	})
	pc := capture(spec(func(s *sondev1.PacketCaptureSpec) { s.JobID = "busy" }))
	resp := captureHandler(live, may("pods/shop")).Handle(t.Context(), request(t, admissionv1.Create, "PacketCapture", "shop", pc, nil))
	refused(t, resp, code422, "jobId busy is in use by PacketCapture running")
	if calls != 3 {
		t.Errorf("%d pages read, want 3", calls)
	}
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
			live := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(world()...).WithInterceptorFuncs(funcs).Build()
			pc := capture(spec(func(s *sondev1.PacketCaptureSpec) { s.JobID = "aaaa" }))
			resp := captureHandler(live, may("pods/shop")).Handle(t.Context(), request(t, admissionv1.Create, "PacketCapture", "shop", pc, nil))
			refused(t, resp, code500, "API server away", "try again")
		})
	}
}

func TestTheWebhookWritesNothing(t *testing.T) {
	wrote := func() error { t.Error("the webhook writes"); return errors.New("must not write") }
	live := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(world()...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return wrote() },
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return wrote() },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return wrote()
		},
	}).Build()
	req := request(t, admissionv1.Create, "PacketCapture", "shop", capture(spec(nil)), nil)
	dry := true
	req.DryRun = &dry
	if resp := captureHandler(live, may("pods/shop")).Handle(t.Context(), req); !resp.Allowed {
		t.Errorf("dry run refused: %s", resp.Result.Message)
	}
}

// With the compiler that the manager uses: its words reach the user.
func TestPacketCaptureFilterIsCompiled(t *testing.T) {
	compiler, err := pcapfilter.New(t.Context())
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
			h := captureHandler(liveReader(t, world()...), may("pods/shop"))
			h.Checks = &PacketCaptureChecks{Filters: compiler}
			pc := capture(spec(func(s *sondev1.PacketCaptureSpec) { s.Filter = tc.filter }))
			resp := h.Handle(t.Context(), request(t, admissionv1.Create, "PacketCapture", "shop", pc, nil))
			if tc.want != "" {
				refused(t, resp, code422, tc.want)
			} else if !resp.Allowed {
				t.Errorf("refused: %s", resp.Result.Message)
			}
		})
	}
}
