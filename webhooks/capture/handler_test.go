package capture

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// changes to the fields of a spec, as a user writes them; nil takes one away.
type changes = map[string]any

// captureKind has the differences between the kinds. Their webhooks must behave alike otherwise.
type captureKind struct {
	kind.Capture
	handler func(client.Reader, access.Reviews) *Handler
	other   kind.Capture
	spec    changes // what the schema has put in by then
}

var captureKinds = []captureKind{
	{kind.PacketCapture, captureHandler, kind.Trace, changes{"snapLength": 262144}},
	{kind.Trace, traceHandler, kind.PacketCapture, changes{"format": "ndjson", "events": []string{"process", "file"}}},
}

// kindsOf returns the kinds of a row: one by name, or all.
func kindsOf(only string) []captureKind {
	return slices.DeleteFunc(slices.Clone(captureKinds), func(k captureKind) bool { return only != "" && only != k.Name })
}

// creation asks for an object in home, with a plain spec that is changed.
func (k captureKind) creation(t *testing.T, home string, changed changes) webhook.AdmissionRequest {
	t.Helper()
	spec := changes{"targetDeployment": "web", "duration": "30", "retainFor": "1h", "maxBytes": 1 << 30}
	maps.Copy(spec, k.spec)
	maps.Copy(spec, changed)
	maps.DeleteFunc(spec, func(_ string, v any) bool { return v == nil })
	return webhooktest.Request(t, admissionv1.Create, k.Name, home, changes{"metadata": changes{"namespace": home, "name": "mine"}, "spec": spec}, nil)
}

// rightsTo returns the rights on these resources, with the verb of a kind.
func rightsTo(k kind.Capture, resources ...string) *webhooktest.Rights {
	r := webhooktest.May(resources...)
	r.Verb = k.Verb
	return r
}

// forKind replaces VERB and KIND in texts by the words of this kind.
func (k captureKind) forKind(texts ...string) []string {
	own := strings.NewReplacer("VERB", k.Verb, "KIND", k.Name)
	all := make([]string, 0, len(texts))
	for _, s := range texts {
		all = append(all, own.Replace(s))
	}
	return all
}

func targetRef(kind sondev1.TargetKind, name string) changes {
	return changes{"targetDeployment": nil, "targetRef": changes{"kind": kind, "name": name}}
}

// TestClosed: a capture that cluster admins have closed, paused or bounded is refused. The message says who can change it.
func TestClosed(t *testing.T) {
	configMap := func(value string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: webhooktest.OperatorNamespace, Name: pause.ConfigMapName}, Data: map[string]string{pause.Key: value}}
	}
	closed := webhooktest.Namespace("closed", map[string]string{sondev1.LabelOptOut: "true"})
	shop := []string{"pods/shop"}
	for name, tc := range map[string]struct {
		home    string // shop if empty
		changed changes
		live    []client.Object
		may     []string
		only    string
		code    int32 // 0: admitted
		want    []string
	}{
		"at the ceilings": {may: shop, changed: changes{"duration": "1h", "maxBytes": 2 << 30}},
		// It lasts no longer than the ceiling, and is not refused for it.
		"until the Pod is gone": {may: shop, changed: changes{"duration": nil}, only: kind.Trace.Name},
		"too long":              {may: shop, changed: changes{"duration": "61m"}, code: webhooktest.Forbidden, want: []string{"1h0m0s", "cluster admin", "--max-duration"}},
		"too large":             {may: shop, changed: changes{"maxBytes": 3 << 30}, code: webhooktest.Forbidden, want: []string{"2147483648", "cluster admin", "--max-bytes"}},
		"not paused":            {may: shop, live: []client.Object{configMap("false")}},
		"paused":                {may: shop, live: []client.Object{configMap("true")}, code: webhooktest.Forbidden, want: []string{"paused", "ConfigMap sonde-system/sonde-config"}},
		"opted out":             {home: "closed", live: []client.Object{closed}, may: []string{"pods/closed"}, code: webhooktest.Forbidden, want: []string{"cluster admin", sondev1.LabelOptOut + "=true"}},
		"opted out, a hub's": {
			home: "hub", changed: changes{"targetNamespace": "closed"},
			live: []client.Object{closed}, may: []string{"pods/closed"}, code: webhooktest.Forbidden, want: []string{sondev1.LabelOptOut},
		},
		"opted out, no right: says nothing else": {home: "closed", live: []client.Object{closed}, code: webhooktest.Forbidden, want: []string{"lacks VERB"}},
	} {
		for _, k := range kindsOf(tc.only) {
			t.Run(name+"/"+k.Name, func(t *testing.T) {
				home := cmp.Or(tc.home, "shop")
				h := k.handler(webhooktest.Reader(t, append(webhooktest.Objects(), tc.live...)...), rightsTo(k.Capture, tc.may...))
				h.Ceilings = ceiling.Limits{Duration: time.Hour, Bytes: 2 << 30}
				resp := h.Handle(t.Context(), k.creation(t, home, tc.changed))
				if tc.code != 0 {
					webhooktest.Refused(t, resp, tc.code, k.forKind(tc.want...)...)
				} else if !resp.Allowed {
					t.Errorf("refused: %s", resp.Result.Message)
				}
			})
		}
	}
}

func TestCreate(t *testing.T) {
	shop, foreign := []string{"pods/shop"}, changes{"targetNamespace": "bank", "targetDeployment": "vault"}
	for name, tc := range map[string]struct {
		home    string // shop if empty
		changed changes
		may     []string
		other   bool  // the user has the other kind's verb
		err     error // of the review
		only    string
		code    int32    // 0: admitted
		want    []string // in the message
		not     []string // not in the message
	}{
		"own namespace":          {may: shop},
		"own namespace, named":   {changed: changes{"targetNamespace": "shop"}, may: shop},
		"a StatefulSet":          {changed: targetRef(sondev1.TargetStatefulSet, "db"), may: shop},
		"a Pod":                  {changed: targetRef(sondev1.TargetPod, "one"), may: shop},
		"until the Pod is gone":  {changed: changes{"duration": nil}, may: shop, only: kind.Trace.Name},
		"from a hub":             {home: "hub", changed: foreign, may: []string{"pods/bank"}},
		"no right":               {code: webhooktest.Forbidden, want: []string{"alice lacks VERB on pods/shop"}},
		"the other kind's right": {may: []string{"pods/shop", "nodes"}, other: true, code: webhooktest.Forbidden, want: []string{"alice lacks VERB on pods/shop"}},
		"right elsewhere":        {may: []string{"pods/bank"}, code: webhooktest.Forbidden, want: []string{"pods/shop"}},
		"right on nodes alone":   {may: []string{"nodes"}, code: webhooktest.Forbidden, want: []string{"pods/shop"}},
		"foreign, not a hub":     {changed: foreign, may: []string{"pods/shop", "pods/bank"}, code: webhooktest.Forbidden, want: []string{"hub=true", "create the KIND in namespace bank"}},
		"foreign, hub is false":  {home: "nohub", changed: foreign, may: []string{"pods/bank"}, code: webhooktest.Forbidden, want: []string{"hub=true"}},
		"hub, no right there":    {home: "hub", changed: foreign, may: []string{"pods/hub"}, code: webhooktest.Forbidden, want: []string{"pods/bank"}},
		"hub, no right, says nothing about the namespace": {
			home: "hub", changed: changes{"targetNamespace": "nowhere"}, code: webhooktest.Forbidden, want: []string{"pods/nowhere"}, not: []string{"not found"},
		},
		"no right, says nothing about the workload": {changed: targetRef(sondev1.TargetDeployment, "nothing"), code: webhooktest.Forbidden, not: []string{"not found"}},
		"no right, says nothing about the filter":   {changed: changes{"filter": "bad"}, only: kind.PacketCapture.Name, code: webhooktest.Forbidden, not: []string{"syntax"}},
		"unknown namespace": {
			home: "hub", changed: changes{"targetNamespace": "nowhere"},
			may: []string{"pods/nowhere"}, code: webhooktest.Invalid, want: []string{"namespace nowhere not found", "targetNamespace"},
		},
		"namespace being deleted": {
			home: "hub", changed: changes{"targetNamespace": "leaving"}, may: []string{"pods/leaving"}, code: webhooktest.Invalid, want: []string{"is being deleted"},
		},
		"unknown Deployment": {
			changed: changes{"targetDeployment": "wbe"}, may: shop, code: webhooktest.Invalid, want: []string{"Deployment shop/wbe not found", "kubectl get deployments -n shop"},
		},
		"a Deployment's name as StatefulSet": {changed: targetRef(sondev1.TargetStatefulSet, "web"), may: shop, code: webhooktest.Invalid, want: []string{"StatefulSet shop/web not found"}},
		"unknown Pod":                        {changed: targetRef(sondev1.TargetPod, "two"), may: shop, code: webhooktest.Invalid, want: []string{"Pod shop/two not found"}},
		"unknown kind":                       {changed: targetRef("Job", "one"), may: shop, code: webhooktest.Invalid, want: []string{`kind "Job"`, "DaemonSet or Pod"}},

		"hostNetwork Deployment":  {changed: targetRef(sondev1.TargetDeployment, "edge"), may: shop, code: webhooktest.Forbidden, want: []string{"hostNetwork: true", "lacks VERB on nodes"}},
		"hostNetwork StatefulSet": {changed: targetRef(sondev1.TargetStatefulSet, "hostdb"), may: shop, code: webhooktest.Forbidden, want: []string{"on nodes"}},
		"hostNetwork DaemonSet":   {changed: targetRef(sondev1.TargetDaemonSet, "log"), may: shop, code: webhooktest.Forbidden, want: []string{"DaemonSet shop/log", "on nodes"}},
		"hostNetwork Pod":         {changed: targetRef(sondev1.TargetPod, "hostone"), may: shop, code: webhooktest.Forbidden, want: []string{"Pod shop/hostone", "on nodes"}},
		"hostNetwork with right":  {changed: targetRef(sondev1.TargetDaemonSet, "log"), may: []string{"pods/shop", "nodes"}},
		"hostPID Pod": {
			changed: targetRef(sondev1.TargetPod, "seesall"), may: shop, only: kind.Trace.Name,
			code: webhooktest.Forbidden, want: []string{"Pod shop/seesall", "hostPID: true", "system calls", "lacks trace on nodes"},
		},
		"hostPID Pod with right": {changed: targetRef(sondev1.TargetPod, "seesall"), may: []string{"pods/shop", "nodes"}},
		// It shares no network with its node.
		"hostPID Pod's packets": {changed: targetRef(sondev1.TargetPod, "seesall"), may: shop, only: kind.PacketCapture.Name},

		"the operator's namespace as home":   {home: webhooktest.OperatorNamespace, may: []string{"pods/sonde-system", "nodes"}, code: webhooktest.Forbidden, want: []string{"the operator's own", "create the KIND"}},
		"the operator's namespace as target": {home: "hub", changed: changes{"targetNamespace": webhooktest.OperatorNamespace}, may: []string{"pods/sonde-system"}, code: webhooktest.Forbidden, want: []string{"the operator's own"}},

		"filter":                             {changed: changes{"filter": "tcp port 80"}, may: shop, only: kind.PacketCapture.Name},
		"bad filter":                         {changed: changes{"filter": "bad"}, may: shop, only: kind.PacketCapture.Name, code: webhooktest.Invalid, want: []string{"syntax error: see pcap-filter(7)"}},
		"broken engine":                      {changed: changes{"filter": "boom"}, may: shop, only: kind.PacketCapture.Name, code: webhooktest.Failed, want: []string{"compile filter: sandbox broken", "try again"}},
		"endless filter":                     {changed: changes{"filter": strings.Repeat("(", 1<<20)}, may: shop, only: kind.PacketCapture.Name, code: webhooktest.Invalid, want: []string{"at most 4096"}},
		"snapLength that the schema refuses": {changed: changes{"snapLength": -1}, may: shop, only: kind.PacketCapture.Name},
		"no answer to the review":            {err: errors.New("etcd away"), code: webhooktest.Failed, want: []string{"etcd away: try again"}},

		"jobId that is free":                     {changed: changes{"jobId": "aaaa"}, may: shop},
		"jobId of a running capture":             {changed: changes{"jobId": "busy"}, may: shop, code: webhooktest.Invalid, want: []string{"jobId busy is in use by PacketCapture running"}},
		"jobId of a running trace":               {changed: changes{"jobId": "trce"}, may: shop, code: webhooktest.Invalid, want: []string{"in use by Trace going"}},
		"jobId that a running capture was given": {changed: changes{"jobId": "made"}, may: shop, code: webhooktest.Invalid, want: []string{"PacketCapture given"}},
		"jobId of a capture that is over":        {changed: changes{"jobId": "done"}, may: shop},
		"jobId of another target's capture":      {changed: changes{"jobId": "othr"}, may: shop},
		"jobId of one in another namespace":      {home: "hub", changed: changes{"jobId": "busy", "targetNamespace": "shop"}, may: shop},
	} {
		for _, k := range kindsOf(tc.only) {
			t.Run(name+"/"+k.Name, func(t *testing.T) {
				home := cmp.Or(tc.home, "shop")
				who := rightsTo(k.Capture, tc.may...)
				if tc.other {
					who = rightsTo(k.other, tc.may...)
				}
				who.Err = tc.err
				req := k.creation(t, home, tc.changed)
				resp := k.handler(webhooktest.Reader(t, append(webhooktest.Objects(), otherCaptures()...)...), who).Handle(t.Context(), req)
				if tc.code != 0 {
					webhooktest.Refused(t, resp, tc.code, k.forKind(tc.want...)...)
					for _, n := range tc.not {
						if strings.Contains(resp.Result.Message, n) {
							t.Errorf("message %q says %q", resp.Result.Message, n)
						}
					}
					return
				}
				if !resp.Allowed {
					t.Fatalf("refused: %s", resp.Result.Message)
				}
				in, _ := tc.changed["targetNamespace"].(string)
				k.stamped(t, req, resp, cmp.Or(in, home))
			})
		}
	}
}

// stamped checks that the stamp is alice's, for the namespace of the target, and valid for no other kind.
func (k captureKind) stamped(t *testing.T, req webhook.AdmissionRequest, resp webhook.AdmissionResponse, in string) {
	t.Helper()
	got := k.New()
	webhooktest.Patched(t, req, resp, got)
	claim, err := stamp.Verify(webhooktest.Key, req.Namespace, k.Name, got.CaptureSpec(), got.GetAnnotations(), webhooktest.Now)
	if err != nil {
		t.Fatal(err)
	}
	if claim.Requester.Username != "alice" || claim.TargetNamespaceUID != "uid-"+in {
		t.Errorf("claim %+v, want alice and uid-%s", claim, in)
	}
	if _, err := stamp.Verify(webhooktest.Key, req.Namespace, k.other.Name, got.CaptureSpec(), got.GetAnnotations(), webhooktest.Now); err == nil {
		t.Errorf("a %s's stamp serves for a %s", k.Name, k.other.Name)
	}
}

// otherCaptures of workloads in shop.
func otherCaptures() []client.Object {
	of := func(name, id, status string, phase sondev1.Phase, target string) *sondev1.PacketCapture {
		return &sondev1.PacketCapture{
			ObjectMeta: webhooktest.Meta("shop", name),
			Spec:       sondev1.PacketCaptureSpec{JobID: id, TargetDeployment: target},
			Status:     sondev1.CaptureStatus{Phase: phase, JobID: status},
		}
	}
	return []client.Object{
		of("running", "busy", "busy", sondev1.PhaseCapturing, "web"),
		of("given", "", "made", sondev1.PhasePending, "web"),
		of("over", "done", "done", sondev1.PhaseIncomplete, "web"),
		of("other", "othr", "othr", sondev1.PhaseCapturing, "api"),
		&sondev1.Trace{ObjectMeta: webhooktest.Meta("shop", "going"), Spec: sondev1.TraceSpec{JobID: "trce", TargetDeployment: "web"}},
	}
}

// The webhook refuses malformed specs before any lookup.
func TestShape(t *testing.T) {
	for name, tc := range map[string]struct {
		changed changes
		only    string
		want    string
	}{
		"no target":       {changed: changes{"targetDeployment": nil}, want: "name a target"},
		"two targets":     {changed: changes{"targetRef": changes{}}, want: "two targets at once: set either targetDeployment or targetRef, and make a second KIND"},
		"bad namespace":   {changed: changes{"targetNamespace": "../kube-system"}, want: "targetNamespace must be the name"},
		"bad deployment":  {changed: changes{"targetDeployment": "web/../x"}, want: "targetDeployment must be the name"},
		"bad name in ref": {changed: targetRef(sondev1.TargetPod, ""), want: "targetRef.name must be"},
		"bad jobId":       {changed: changes{"jobId": "QWER"}, want: "four characters of [a-z0-9]"},
		"no duration":     {changed: changes{"duration": nil}, only: kind.PacketCapture.Name, want: "write seconds"},
		"words":           {changed: changes{"duration": "a while"}, want: "write seconds"},
		"no end":          {changed: changes{"duration": strings.Repeat("9", 1000)}, want: "1000 characters"},
		"zero":            {changed: changes{"duration": "0"}, want: "between 1s and 24h"},
		"two days":        {changed: changes{"duration": "48h"}, want: "between 1s and 24h"},
		"brief retention": {changed: changes{"retainFor": "9s"}, want: "retainFor must lie between 10s and 168h"},
	} {
		for _, k := range kindsOf(tc.only) {
			t.Run(name+"/"+k.Name, func(t *testing.T) {
				r := rightsTo(k.Capture, "pods/shop")
				resp := k.handler(webhooktest.Reader(t, webhooktest.Objects()...), r).Handle(t.Context(), k.creation(t, "shop", tc.changed))
				webhooktest.Refused(t, resp, webhooktest.Invalid, k.forKind(tc.want)...)
				if len(r.Asked) != 0 {
					t.Errorf("reviewed %v for a malformed spec", r.Asked)
				}
			})
		}
	}
}
