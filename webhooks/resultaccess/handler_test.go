package resultaccess

import (
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
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

// admitted is a capture as the webhook let it in, of a target namespace with this UID.
func admitted(t *testing.T, ns, name string, s sondev1.PacketCaptureSpec, uid string) *sondev1.PacketCapture {
	t.Helper()
	a, err := stamp.Sign(webhooktest.Key, ns, stamp.KindPacketCapture, s, stamp.Claim{
		Requester: access.Requester{Username: "bob"}, TargetNamespaceUID: uid, IssuedAt: webhooktest.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := webhooktest.Meta(ns, name)
	m.Annotations, m.CreationTimestamp = a, metav1.NewTime(webhooktest.Now)
	return &sondev1.PacketCapture{ObjectMeta: m, Spec: s}
}

func captures(t *testing.T) []client.Object {
	t.Helper()
	foreign := spec(func(s *sondev1.PacketCaptureSpec) { s.TargetNamespace, s.TargetDeployment = "bank", "vault" })
	gone := spec(func(s *sondev1.PacketCaptureSpec) { s.TargetNamespace = "nowhere" })
	forged := admitted(t, "shop", "forged", spec(nil), "uid-shop")
	forged.Annotations[sondev1.AnnotationStamp] = strings.Repeat("00", 32)
	return []client.Object{
		admitted(t, "shop", "web", spec(nil), "uid-shop"),
		admitted(t, "shop", "log", spec(ref(sondev1.TargetDaemonSet, "log")), "uid-shop"),
		admitted(t, "shop", "left", spec(ref(sondev1.TargetDeployment, "left")), "uid-shop"),
		admitted(t, "shop", "before", spec(nil), "uid-of-an-earlier-shop"),
		admitted(t, "hub", "vault", foreign, "uid-bank"),
		admitted(t, "hub", "gone", gone, "uid-nowhere"),
		admitted(t, "nohub", "vault", foreign, "uid-bank"),
		forged,
		&sondev1.PacketCapture{ObjectMeta: webhooktest.Meta("shop", "unstamped"), Spec: spec(nil)},
		admittedTrace(t, "calls", sondev1.TraceSpec{TargetDeployment: "web", RetainFor: "1h"}),
		admittedTrace(t, "node", sondev1.TraceSpec{TargetRef: &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: "seesall"}, RetainFor: "1h"}),
	}
}

// admittedTrace is a trace in shop as the webhook let it in.
func admittedTrace(t *testing.T, name string, s sondev1.TraceSpec) *sondev1.Trace {
	t.Helper()
	a, err := stamp.Sign(webhooktest.Key, "shop", kind.Trace.Name, s, stamp.Claim{
		Requester: access.Requester{Username: "bob"}, TargetNamespaceUID: "uid-shop", IssuedAt: webhooktest.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := webhooktest.Meta("shop", name)
	m.Annotations, m.CreationTimestamp = a, metav1.NewTime(webhooktest.Now)
	return &sondev1.Trace{ObjectMeta: m, Spec: s}
}

// aTrace makes the access one to a Trace.
func aTrace(s *sondev1.ResultAccessSpec) { s.CaptureRef.Kind = sondev1.CaptureTrace }

func TestResultAccessCreate(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	for name, tc := range map[string]struct {
		home, capture string
		change        func(*sondev1.ResultAccessSpec)
		may           *webhooktest.Rights
		code          int32
		want          string
	}{
		"own namespace":         {home: "shop", capture: "web", may: webhooktest.May("pods/shop")},
		"from a hub":            {home: "hub", capture: "vault", may: webhooktest.May("pods/bank")},
		"target has gone":       {home: "shop", capture: "left", may: webhooktest.May("pods/shop")},
		"hostNetwork and right": {home: "shop", capture: "log", may: webhooktest.May("pods/shop", "nodes")},

		"may read the kind, may not capture": {home: "shop", capture: "web", may: webhooktest.May(), code: webhooktest.Forbidden, want: "alice lacks capture on pods/shop"},
		"hub, no right on the target":        {home: "hub", capture: "vault", may: webhooktest.May("pods/hub"), code: webhooktest.Forbidden, want: "pods/bank"},
		"no hub any more":                    {home: "nohub", capture: "vault", may: webhooktest.May("pods/bank"), code: webhooktest.Forbidden, want: "hub=true"},
		"hostNetwork":                        {home: "shop", capture: "log", may: webhooktest.May("pods/shop"), code: webhooktest.Forbidden, want: "lacks capture on nodes"},
		"namespace made anew":                {home: "shop", capture: "before", may: webhooktest.May("pods/shop"), code: webhooktest.Forbidden, want: "was deleted and created again"},
		"namespace gone":                     {home: "hub", capture: "gone", may: webhooktest.May("pods/nowhere"), code: webhooktest.Invalid, want: "has been deleted"},
		"unknown capture":                    {home: "shop", capture: "nothing", may: webhooktest.May("pods/shop"), code: webhooktest.Invalid, want: "kubectl get packetcaptures -n shop"},
		"capture never admitted":             {home: "shop", capture: "unstamped", may: webhooktest.May("pods/shop"), code: webhooktest.Forbidden, want: "has no results"},
		"capture with a forged stamp":        {home: "shop", capture: "forged", may: webhooktest.May("pods/shop"), code: webhooktest.Forbidden, want: "has no results"},
		"no answer to the review":            {home: "shop", capture: "web", may: &webhooktest.Rights{Err: errors.New("etcd away")}, code: webhooktest.Failed, want: "etcd away"},

		"another kind": {
			home: "shop", capture: "web", may: webhooktest.May("pods/shop"), code: webhooktest.Invalid, want: "write PacketCapture or Trace",
			change: func(s *sondev1.ResultAccessSpec) { s.CaptureRef.Kind = "Secret" },
		},
		"a Trace":                     {home: "shop", capture: "calls", may: webhooktest.MayTrace("pods/shop"), change: aTrace},
		"a Trace, and may capture":    {home: "shop", capture: "calls", may: webhooktest.May("pods/shop"), change: aTrace, code: webhooktest.Forbidden, want: "alice lacks trace on pods/shop"},
		"a PacketCapture, may trace":  {home: "shop", capture: "web", may: webhooktest.MayTrace("pods/shop"), code: webhooktest.Forbidden, want: "alice lacks capture on pods/shop"},
		"a Trace of hostPID":          {home: "shop", capture: "node", may: webhooktest.MayTrace("pods/shop"), change: aTrace, code: webhooktest.Forbidden, want: "lacks trace on nodes"},
		"a Trace of hostPID, allowed": {home: "shop", capture: "node", may: webhooktest.MayTrace("pods/shop", "nodes"), change: aTrace},
		"a PacketCapture's name":      {home: "shop", capture: "web", may: webhooktest.MayTrace("pods/shop"), change: aTrace, code: webhooktest.Invalid, want: "kubectl get traces -n shop"},
		"a name with a path":          {home: "shop", capture: "../x", may: webhooktest.May("pods/shop"), code: webhooktest.Invalid, want: "captureRef.name must be"},
		"a token for a hash": {
			home: "shop", capture: "web", may: webhooktest.May("pods/shop"), code: webhooktest.Invalid, want: "64 hex digits",
			change: func(s *sondev1.ResultAccessSpec) { s.TokenHash = "secret" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &Handler{Live: webhooktest.Reader(t, append(webhooktest.Objects(), captures(t)...)...), Cache: cache(t), Reviews: tc.may, Key: webhooktest.Key, Clock: webhooktest.Clock()}
			ra := &sondev1.ResultAccess{Spec: sondev1.ResultAccessSpec{
				CaptureRef: sondev1.CaptureReference{Kind: sondev1.CapturePacketCapture, Name: tc.capture},
				TokenHash:  hash, ExpirationSeconds: 900,
			}}
			if tc.change != nil {
				tc.change(&ra.Spec)
			}
			req := webhooktest.Request(t, admissionv1.Create, "ResultAccess", tc.home, ra, nil)
			resp := h.Handle(t.Context(), req)
			if tc.code != 0 {
				webhooktest.Refused(t, resp, tc.code, tc.want)
				return
			}
			var got sondev1.ResultAccess
			webhooktest.Patched(t, req, resp, &got)
			claim, err := stamp.Verify(webhooktest.Key, tc.home, stamp.KindResultAccess, got.Spec, got.Annotations, webhooktest.Now)
			if err != nil || claim.Requester.Username != "alice" {
				t.Errorf("claim %+v, %v; want alice's", claim, err)
			}
			if _, err := stamp.Verify(webhooktest.Key, tc.home, stamp.KindPacketCapture, got.Spec, got.Annotations, webhooktest.Now); err == nil {
				t.Error("a ResultAccess's stamp serves for a PacketCapture")
			}
		})
	}
}

func TestResultAccessUpdateKeepsTheStamp(t *testing.T) {
	before := &sondev1.ResultAccess{ObjectMeta: webhooktest.Meta("shop", "mine")}
	before.Annotations = map[string]string{sondev1.AnnotationStamp: "s"}
	after := before.DeepCopy()
	after.Annotations[sondev1.AnnotationStamp] = "t"
	h := &Handler{Live: webhooktest.Reader(t), Reviews: webhooktest.May(), Key: webhooktest.Key, Clock: webhooktest.Clock()}
	webhooktest.Refused(t, h.Handle(t.Context(), webhooktest.Request(t, admissionv1.Update, "ResultAccess", "shop", after, before)), webhooktest.Forbidden, "create a new ResultAccess")
	if resp := h.Handle(t.Context(), webhooktest.Request(t, admissionv1.Update, "ResultAccess", "shop", before, before)); !resp.Allowed {
		t.Errorf("an unchanged stamp is refused: %s", resp.Result.Message)
	}
}
