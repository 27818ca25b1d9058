package webhooks

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/access"
	"github.com/sonde-operator/sonde/internal/brake"
	"github.com/sonde-operator/sonde/internal/ceiling"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/pcapfilter"
	"github.com/sonde-operator/sonde/internal/stamp"
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

func capture(ns string, s sondev1.PacketCaptureSpec) *sondev1.PacketCapture {
	return &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}, Spec: s}
}

// TestClosed: what cluster admins have closed, paused or bounded is refused, in words that say who can change it.
func TestClosed(t *testing.T) {
	configMap := func(value string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "sonde-system", Name: brake.Name}, Data: map[string]string{brake.Key: value}}
	}
	closed := namespace("closed", map[string]string{sondev1.LabelOptOut: "true"})
	for name, tc := range map[string]struct {
		home   string
		change func(*sondev1.PacketCaptureSpec)
		live   []client.Object
		may    *rights
		code   int32
		want   []string
	}{
		"at the ceilings": {change: func(s *sondev1.PacketCaptureSpec) { s.Duration, s.MaxBytes = "1h", 2<<30 }},
		"too long":        {change: func(s *sondev1.PacketCaptureSpec) { s.Duration = "61m" }, code: code403, want: []string{"1h0m0s", "cluster admin", "--max-duration"}},
		"too large":       {change: func(s *sondev1.PacketCaptureSpec) { s.MaxBytes = 3 << 30 }, code: code403, want: []string{"2147483648", "cluster admin", "--max-bytes"}},
		"not paused":      {live: []client.Object{configMap("false")}},
		"paused":          {live: []client.Object{configMap("true")}, code: code403, want: []string{"paused", "ConfigMap sonde-system/sonde-config"}},
		"opted out":       {home: "closed", live: []client.Object{closed}, may: may("pods/closed"), code: code403, want: []string{"cluster admin", sondev1.LabelOptOut + "=true"}},
		"opted out, a hub's": {
			home: "hub", change: func(s *sondev1.PacketCaptureSpec) { s.TargetNamespace = "closed" },
			live: []client.Object{closed}, may: may("pods/closed"), code: code403, want: []string{sondev1.LabelOptOut},
		},
		"opted out, no right: nothing is told": {home: "closed", live: []client.Object{closed}, may: may(), code: code403, want: []string{"lacks capture"}},
	} {
		t.Run(name, func(t *testing.T) {
			home, who := tc.home, tc.may
			if home == "" {
				home = "shop"
			}
			if who == nil {
				who = may("pods/shop")
			}
			h := captureHandler(liveReader(t, append(world(), tc.live...)...), who)
			h.Ceilings = ceiling.Limits{Duration: time.Hour, Bytes: 2 << 30}
			resp := h.Handle(t.Context(), request(t, admissionv1.Create, "PacketCapture", home, capture(home, spec(tc.change)), nil))
			if tc.code != 0 {
				refused(t, resp, tc.code, tc.want...)
			} else if !resp.Allowed {
				t.Errorf("refused: %s", resp.Result.Message)
			}
		})
	}
}

func TestPacketCaptureCreate(t *testing.T) {
	foreign := func(s *sondev1.PacketCaptureSpec) { s.TargetNamespace, s.TargetDeployment = "bank", "vault" }
	for name, tc := range map[string]struct {
		home string // shop if empty
		spec func(*sondev1.PacketCaptureSpec)
		may  *rights
		code int32    // 0: admitted
		want []string // in the message
		not  []string // not in the message
	}{
		"own namespace":         {may: may("pods/shop")},
		"own namespace, named":  {spec: func(s *sondev1.PacketCaptureSpec) { s.TargetNamespace = "shop" }, may: may("pods/shop")},
		"a StatefulSet":         {spec: ref(sondev1.TargetStatefulSet, "db"), may: may("pods/shop")},
		"a Pod":                 {spec: ref(sondev1.TargetPod, "one"), may: may("pods/shop")},
		"from a hub":            {home: "hub", spec: foreign, may: may("pods/bank")},
		"no right":              {may: may(), code: code403, want: []string{"alice lacks capture on pods/shop"}},
		"right elsewhere":       {may: may("pods/bank"), code: code403, want: []string{"pods/shop"}},
		"right on nodes alone":  {may: may("nodes"), code: code403, want: []string{"pods/shop"}},
		"foreign, not a hub":    {spec: foreign, may: may("pods/shop", "pods/bank"), code: code403, want: []string{"hub=true", "create the PacketCapture in namespace bank"}},
		"foreign, hub is false": {home: "nohub", spec: foreign, may: may("pods/bank"), code: code403, want: []string{"hub=true"}},
		"hub, no right there":   {home: "hub", spec: foreign, may: may("pods/hub"), code: code403, want: []string{"pods/bank"}},
		"hub, no right, nothing is told of the namespace": {
			home: "hub", spec: func(s *sondev1.PacketCaptureSpec) { s.TargetNamespace = "nowhere" },
			may: may(), code: code403, want: []string{"pods/nowhere"}, not: []string{"not found"},
		},
		"no right, nothing is told of the workload": {
			spec: ref(sondev1.TargetDeployment, "nothing"), may: may(), code: code403, not: []string{"not found"},
		},
		"no right, nothing is told of the filter": {
			spec: func(s *sondev1.PacketCaptureSpec) { s.Filter = "bad" }, may: may(), code: code403, not: []string{"syntax"},
		},
		"unknown namespace": {
			home: "hub", spec: func(s *sondev1.PacketCaptureSpec) { s.TargetNamespace = "nowhere" },
			may: may("pods/nowhere"), code: code422, want: []string{"namespace nowhere not found", "targetNamespace"},
		},
		"namespace on its way out": {
			home: "hub", spec: func(s *sondev1.PacketCaptureSpec) { s.TargetNamespace = "leaving" },
			may: may("pods/leaving"), code: code422, want: []string{"is being deleted"},
		},
		"unknown Deployment": {
			spec: func(s *sondev1.PacketCaptureSpec) { s.TargetDeployment = "wbe" }, may: may("pods/shop"),
			code: code422, want: []string{"Deployment shop/wbe not found", "kubectl get deployments -n shop"},
		},
		"a Deployment's name as StatefulSet": {
			spec: ref(sondev1.TargetStatefulSet, "web"), may: may("pods/shop"), code: code422, want: []string{"StatefulSet shop/web not found"},
		},
		"unknown Pod":  {spec: ref(sondev1.TargetPod, "two"), may: may("pods/shop"), code: code422, want: []string{"Pod shop/two not found"}},
		"unknown kind": {spec: ref("Job", "one"), may: may("pods/shop"), code: code422, want: []string{`kind "Job"`, "DaemonSet or Pod"}},

		"hostNetwork Deployment":  {spec: ref(sondev1.TargetDeployment, "edge"), may: may("pods/shop"), code: code403, want: []string{"hostNetwork", "lacks capture on nodes"}},
		"hostNetwork StatefulSet": {spec: ref(sondev1.TargetStatefulSet, "hostdb"), may: may("pods/shop"), code: code403, want: []string{"on nodes"}},
		"hostNetwork DaemonSet":   {spec: ref(sondev1.TargetDaemonSet, "log"), may: may("pods/shop"), code: code403, want: []string{"on nodes"}},
		"hostNetwork Pod":         {spec: ref(sondev1.TargetPod, "hostone"), may: may("pods/shop"), code: code403, want: []string{"Pod shop/hostone", "on nodes"}},
		"hostNetwork with right":  {spec: ref(sondev1.TargetDaemonSet, "log"), may: may("pods/shop", "nodes")},

		"the operator's namespace as home":   {home: "sonde-system", may: may("pods/sonde-system", "nodes"), code: code403, want: []string{"the operator's own"}},
		"the operator's namespace as target": {home: "hub", spec: func(s *sondev1.PacketCaptureSpec) { s.TargetNamespace = "sonde-system" }, may: may("pods/sonde-system"), code: code403, want: []string{"the operator's own"}},

		"filter":        {spec: func(s *sondev1.PacketCaptureSpec) { s.Filter = "tcp port 80" }, may: may("pods/shop")},
		"bad filter":    {spec: func(s *sondev1.PacketCaptureSpec) { s.Filter = "bad" }, may: may("pods/shop"), code: code422, want: []string{"syntax error: see pcap-filter(7)"}},
		"broken engine": {spec: func(s *sondev1.PacketCaptureSpec) { s.Filter = "boom" }, may: may("pods/shop"), code: code500, want: []string{"compile filter: sandbox broken", "try again"}},
		"endless filter": {
			spec: func(s *sondev1.PacketCaptureSpec) { s.Filter = strings.Repeat("(", 1<<20) }, may: may("pods/shop"),
			code: code422, want: []string{"at most 4096"},
		},
		"snapLength that the schema refuses": {
			spec: func(s *sondev1.PacketCaptureSpec) { s.SnapLength = -1 }, may: may("pods/shop"),
		},
		"no answer to the review": {may: &rights{err: errors.New("etcd away")}, code: code500, want: []string{"etcd away: try again"}},

		"jobId that is free": {spec: func(s *sondev1.PacketCaptureSpec) { s.JobID = "aaaa" }, may: may("pods/shop")},
		"jobId of a running capture": {
			spec: func(s *sondev1.PacketCaptureSpec) { s.JobID = "busy" }, may: may("pods/shop"),
			code: code422, want: []string{"jobId busy is in use by PacketCapture running"},
		},
		"jobId that a running capture was given": {
			spec: func(s *sondev1.PacketCaptureSpec) { s.JobID = "made" }, may: may("pods/shop"), code: code422, want: []string{"PacketCapture given"},
		},
		"jobId of a capture that is over":   {spec: func(s *sondev1.PacketCaptureSpec) { s.JobID = "done" }, may: may("pods/shop")},
		"jobId of another target's capture": {spec: func(s *sondev1.PacketCaptureSpec) { s.JobID = "othr" }, may: may("pods/shop")},
		"jobId of a capture in another namespace": {
			home: "hub", spec: func(s *sondev1.PacketCaptureSpec) { s.JobID, s.TargetNamespace = "busy", "shop" }, may: may("pods/shop"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			home := tc.home
			if home == "" {
				home = "shop"
			}
			h := captureHandler(liveReader(t, append(world(), otherCaptures()...)...), tc.may)
			pc := capture(home, spec(tc.spec))
			req := request(t, admissionv1.Create, "PacketCapture", home, pc, nil)
			resp := h.Handle(t.Context(), req)
			if tc.code != 0 {
				refused(t, resp, tc.code, tc.want...)
				for _, n := range tc.not {
					if strings.Contains(resp.Result.Message, n) {
						t.Errorf("message %q tells %q", resp.Result.Message, n)
					}
				}
				return
			}
			if !resp.Allowed {
				t.Fatalf("refused: %s", resp.Result.Message)
			}
			var got sondev1.PacketCapture
			patched(t, req, resp, &got)
			claim, err := stamp.Verify(testKey, home, stamp.KindPacketCapture, got.Spec, got.Annotations, now)
			if err != nil {
				t.Fatal(err)
			}
			wantNS := "uid-" + home
			if pc.Spec.TargetNamespace != "" {
				wantNS = "uid-" + pc.Spec.TargetNamespace
			}
			if claim.Requester.Username != "alice" || claim.TargetNamespaceUID != wantNS {
				t.Errorf("claim %+v, want alice and %s", claim, wantNS)
			}
		})
	}
}

// otherCaptures of web in shop.
func otherCaptures() []client.Object {
	of := func(name, id, status string, phase sondev1.Phase, target string) *sondev1.PacketCapture {
		return &sondev1.PacketCapture{
			ObjectMeta: meta("shop", name),
			Spec:       sondev1.PacketCaptureSpec{JobID: id, TargetDeployment: target},
			Status:     sondev1.CaptureStatus{Phase: phase, JobID: status},
		}
	}
	return []client.Object{
		of("running", "busy", "busy", sondev1.PhaseCapturing, "web"),
		of("given", "", "made", sondev1.PhasePending, "web"),
		of("over", "done", "done", sondev1.PhaseIncomplete, "web"),
		of("other", "othr", "othr", sondev1.PhaseCapturing, "api"),
	}
}

func TestPacketCaptureShape(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*sondev1.PacketCaptureSpec)
		want   string
	}{
		"no target":       {func(s *sondev1.PacketCaptureSpec) { s.TargetDeployment = "" }, "name a target"},
		"two targets":     {func(s *sondev1.PacketCaptureSpec) { s.TargetRef = &sondev1.TargetReference{} }, "two targets at once"},
		"bad namespace":   {func(s *sondev1.PacketCaptureSpec) { s.TargetNamespace = "../kube-system" }, "targetNamespace must be the name"},
		"bad deployment":  {func(s *sondev1.PacketCaptureSpec) { s.TargetDeployment = "web/../x" }, "targetDeployment must be the name"},
		"bad name in ref": {ref(sondev1.TargetPod, ""), "targetRef.name must be"},
		"bad jobId":       {func(s *sondev1.PacketCaptureSpec) { s.JobID = "QWER" }, "four characters of [a-z0-9]"},
		"no duration":     {func(s *sondev1.PacketCaptureSpec) { s.Duration = "" }, "write seconds"},
		"words":           {func(s *sondev1.PacketCaptureSpec) { s.Duration = "a while" }, "write seconds"},
		"no end":          {func(s *sondev1.PacketCaptureSpec) { s.Duration = strings.Repeat("9", 1000) }, "1000 characters"},
		"zero":            {func(s *sondev1.PacketCaptureSpec) { s.Duration = "0" }, "between 1s and 24h"},
		"two days":        {func(s *sondev1.PacketCaptureSpec) { s.Duration = "48h" }, "between 1s and 24h"},
		"brief retention": {func(s *sondev1.PacketCaptureSpec) { s.RetainFor = "9s" }, "retainFor must lie between 10s and 168h"},
	} {
		t.Run(name, func(t *testing.T) {
			r := may("pods/shop")
			h := captureHandler(liveReader(t, world()...), r)
			resp := h.Handle(t.Context(), request(t, admissionv1.Create, "PacketCapture", "shop", capture("shop", spec(tc.change)), nil))
			refused(t, resp, code422, tc.want)
			if len(r.asked) != 0 {
				t.Errorf("asked for %v about something that cannot be", r.asked)
			}
		})
	}
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
	pc := capture("shop", spec(nil))
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
	stamped := capture("shop", spec(nil))
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
	plain, claimed := capture("shop", spec(nil)), capture("shop", spec(nil))
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
	pc := capture("shop", spec(func(s *sondev1.PacketCaptureSpec) { s.JobID = "busy" }))
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
			pc := capture("shop", spec(func(s *sondev1.PacketCaptureSpec) { s.JobID = "aaaa" }))
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
	req := request(t, admissionv1.Create, "PacketCapture", "shop", capture("shop", spec(nil)), nil)
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
			pc := capture("shop", spec(func(s *sondev1.PacketCaptureSpec) { s.Filter = tc.filter }))
			resp := h.Handle(t.Context(), request(t, admissionv1.Create, "PacketCapture", "shop", pc, nil))
			if tc.want != "" {
				refused(t, resp, code422, tc.want)
			} else if !resp.Allowed {
				t.Errorf("refused: %s", resp.Result.Message)
			}
		})
	}
}
