//go:build api

package api

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/operator/filterpool"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/webhooks/admission"
	"github.com/sonde-operator/sonde/webhooks/capture"
	"github.com/sonde-operator/sonde/webhooks/fluentpvc"
)

// operatorNamespace is the operator's namespace in these tests.
const operatorNamespace = "sonde-system"

var stampKey = []byte("a key of just thirty-two bytes!!")

// serveWebhooks runs the real webhooks behind TLS on loopback. The API server calls them according to the operator's
// own configuration, with another address.
func serveWebhooks(t *testing.T) {
	t.Helper()
	filters, err := filterpool.New(clock.RealClock{}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(filters.Close)
	pc := &capture.Handler{
		Quota: &capture.Quota{},
		Kind:  kind.PacketCapture, Checks: &capture.PacketCaptureChecks{Filters: filters},
		Live: admin, Cache: admin, Reviews: access.NewReviewer(admin), Key: stampKey, OperatorNamespace: operatorNamespace, Clock: clock.RealClock{},
	}
	traces := &capture.Handler{
		Quota: &capture.Quota{},
		Kind:  kind.Trace, Checks: capture.TraceChecks{},
		Live: admin, Cache: admin, Reviews: access.NewReviewer(admin), Key: stampKey, OperatorNamespace: operatorNamespace, Clock: clock.RealClock{},
	}
	mux, intake := http.NewServeMux(), admission.NewIntake()
	mux.Handle(webhookpath.PacketCapture, intake.Hook(&webhook.Admission{Handler: pc}, nil))
	mux.Handle(webhookpath.Trace, intake.Hook(&webhook.Admission{Handler: traces}, nil))
	mux.Handle(webhookpath.FluentPVC, intake.HookCluster(&webhook.Admission{Handler: &fluentpvc.Handler{
		Live: admin, Reviews: access.NewReviewer(admin), Key: stampKey, OperatorNamespace: operatorNamespace, Clock: clock.RealClock{},
	}}, nil))
	serve(t, mux, platformcontroller.BuildConfiguration)
	poll(t, "webhook called", func() bool {
		o := object("default", with(nil))
		err := admin.Create(t.Context(), o, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "not found")
	})
}

// serve runs webhooks on loopback until the test ends, and creates the configuration that makes the API server call them.
func serve(t *testing.T, webhooks http.Handler, build func(platformcontroller.ConfigurationOptions) *acadmission.MutatingWebhookConfigurationApplyConfiguration) {
	t.Helper()
	_, material, _, err := certs.Plan(time.Now(), nil, []string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{material.Serving}, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: webhooks, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })

	b, err := json.Marshal(build(platformcontroller.ConfigurationOptions{Namespace: operatorNamespace, CABundle: material.CABundle}))
	if err != nil {
		t.Fatal(err)
	}
	var conf admissionregistrationv1.MutatingWebhookConfiguration
	if err := json.Unmarshal(b, &conf); err != nil {
		t.Fatal(err)
	}
	for i := range conf.Webhooks {
		cc := &conf.Webhooks[i].ClientConfig
		cc.URL = new(fmt.Sprintf("https://localhost:%d%s", l.Addr().(*net.TCPAddr).Port, *cc.Service.Path))
		cc.Service = nil
	}
	if err := admin.Create(t.Context(), &conf); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), &conf) })
}

func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline.C:
			t.Fatalf("%s: not within 20 s", what)
		case <-tick.C:
		}
	}
}

func web(t *testing.T, ns string) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}
	if err := admin.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// Bad input that the schema cannot detect, each refused with advice on what to write instead.
func TestWebhookRefusals(t *testing.T) {
	serveWebhooks(t)
	ns, hub := namespace(t, nil), namespace(t, map[string]string{sondev1.LabelHub: "true"})
	web(t, ns)
	cases := map[string]struct {
		from   string
		fields map[string]any
		want   string // part of the refusal; empty if accepted
	}{
		"good":                           {from: ns},
		"good filter":                    {from: ns, fields: map[string]any{"filter": "tcp port 80 and not host 10.0.0.1"}},
		"from the hub":                   {from: hub, fields: map[string]any{"targetNamespace": ns}},
		"unknown target":                 {from: ns, fields: map[string]any{"targetDeployment": "wbe"}, want: "wbe not found"},
		"unknown target of another kind": {from: ns, fields: map[string]any{"targetDeployment": nil, "targetRef": map[string]any{"kind": "StatefulSet", "name": "web"}}, want: "web not found"},
		"unknown Pod":                    {from: ns, fields: map[string]any{"targetDeployment": nil, "targetRef": map[string]any{"kind": "Pod", "name": "web-0"}}, want: "web-0 not found"},
		"unknown namespace":              {from: hub, fields: map[string]any{"targetNamespace": "no-such"}, want: "namespace no-such not found"},
		"not from a hub":                 {from: ns, fields: map[string]any{"targetNamespace": hub}, want: sondev1.LabelHub + "=true"},
		"the operator's namespace":       {from: hub, fields: map[string]any{"targetNamespace": operatorNamespace}, want: "is the operator's own"},
		"empty target":                   {from: ns, fields: map[string]any{"targetDeployment": ""}, want: "target"},
		"two targets":                    {from: ns, fields: map[string]any{"targetRef": map[string]any{"kind": "Pod", "name": "a"}}, want: "target"},
		"no target":                      {from: ns, fields: map[string]any{"targetDeployment": nil}, want: "target"},
		"bad duration":                   {from: ns, fields: map[string]any{"duration": "soon"}, want: `"30"`},
		"duration as a number":           {from: ns, fields: map[string]any{"duration": int64(30)}, want: "quotes"},
		"bad retainFor":                  {from: ns, fields: map[string]any{"retainFor": "soon"}, want: `"1h30m"`},
		"bad jobId":                      {from: ns, fields: map[string]any{"jobId": "too long"}, want: "four characters of [a-z0-9]"},
		"zero packets":                   {from: ns, fields: map[string]any{"maxPackets": int64(0)}, want: "greater than or equal to 1"},
		"negative bytes":                 {from: ns, fields: map[string]any{"maxBytes": int64(-1)}, want: "greater than or equal to 65536"},
		"filter that is no filter":       {from: ns, fields: map[string]any{"filter": "give me everything"}, want: "filter"},
		"filter cut short":               {from: ns, fields: map[string]any{"filter": "tcp and"}, want: "filter"},
		"filter with a host name":        {from: ns, fields: map[string]any{"filter": "host db.example"}, want: "use the address"},
		"filter with a service name":     {from: ns, fields: map[string]any{"filter": "port http"}, want: "port 80"},
		"filter of parentheses":          {from: ns, fields: map[string]any{"filter": strings.Repeat("(", 4000)}, want: "filter"},
		"filter of negations":            {from: ns, fields: map[string]any{"filter": strings.Repeat("not ", 1000) + "tcp"}}, // odd, and legal
		"filter of 100 kB":               {from: ns, fields: map[string]any{"filter": strings.Repeat("tcp or ", 15000) + "udp"}, want: "4096"},
		"filter of a megabyte":           {from: ns, fields: map[string]any{"filter": strings.Repeat("tcp or ", 150000) + "udp"}, want: "reads at most 1024 KiB: shorten its fields"},
		"filter with a NUL":              {from: ns, fields: map[string]any{"filter": "tcp\x00"}, want: "filter"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), object(tc.from, with(tc.fields)))
			answered(t, err, tc.want)
			if err != nil {
				t.Logf("%.300v", err)
			}
		})
	}
}

// The webhook stamps the requester on the object, whatever the user wrote there. Afterwards no user can change the
// stamp.
func TestWebhookStamps(t *testing.T) {
	serveWebhooks(t)
	ns := namespace(t, nil)
	web(t, ns)
	o := object(ns, with(nil))
	o.SetAnnotations(map[string]string{sondev1.AnnotationRequester: `{"user":"root"}`, sondev1.AnnotationStamp: "00", "mine": "kept"})
	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	pc := &sondev1.PacketCapture{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), pc); err != nil {
		t.Fatal(err)
	}
	claim, err := stamp.Verify(stampKey, ns, stamp.KindPacketCapture, &pc.Spec, pc.Annotations, pc.CreationTimestamp.Time)
	if err != nil {
		t.Fatal(err)
	}
	if claim.Requester.Username != "admin" && claim.Requester.Username != "system:admin" || pc.Annotations["mine"] != "kept" {
		t.Errorf("requester %+v, annotations %v; want the admin's stamp and the user's annotation", claim.Requester, pc.Annotations)
	}

	stopped := pc.DeepCopy()
	stopped.Spec.Stop = true
	if err := admin.Update(t.Context(), stopped); err != nil {
		t.Errorf("set stop: got %v, want it accepted", err)
	}
	if _, err := stamp.Verify(stampKey, ns, stamp.KindPacketCapture, &stopped.Spec, stopped.Annotations, stopped.CreationTimestamp.Time); err != nil {
		t.Errorf("verify the stamp after stop: %v", err)
	}
	if who := stamp.StoppedBy(stampKey, stopped); who == "" {
		t.Errorf("annotations %v name no user who stopped the capture", stopped.Annotations)
	}
	for _, annotation := range []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp, sondev1.AnnotationStoppedBy} {
		changed := stopped.DeepCopy()
		changed.Annotations[annotation] = "other"
		if err := admin.Update(t.Context(), changed); err == nil || !strings.Contains(err.Error(), "written by the operator alone") {
			t.Errorf("change annotation %s: got %v, want a refusal", annotation, err)
		}
	}
	tr := traceObject(ns, with(nil))
	if err := admin.Create(t.Context(), tr); err != nil {
		t.Fatal(err)
	}
	stampedTrace := &sondev1.Trace{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(tr), stampedTrace); err != nil {
		t.Fatal(err)
	}
	if _, err := stamp.VerifyCapture(stampKey, stampedTrace); err != nil {
		t.Errorf("create a Trace with defaults from the schema: got %v, want it accepted", err)
	}
	labelled := stopped.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	if err := admin.Update(t.Context(), labelled); err != nil {
		t.Errorf("set a label: got %v, want it accepted", err)
	}
}

// While no webhook answers, captures cannot be created. Everything else works, including their deletion.
func TestWebhookDownFailsClosedForItsKindsOnly(t *testing.T) {
	ns := namespace(t, nil)
	web(t, ns)
	before := object(ns, with(nil))
	if err := admin.Create(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(platformcontroller.BuildConfiguration(platformcontroller.ConfigurationOptions{Namespace: operatorNamespace, CABundle: []byte{}}))
	if err != nil {
		t.Fatal(err)
	}
	conf := &unstructured.Unstructured{}
	if err := json.Unmarshal(b, &conf.Object); err != nil {
		t.Fatal(err)
	}
	if err := admin.Create(t.Context(), conf); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), conf) })
	poll(t, "webhook in force", func() bool {
		err := admin.Create(t.Context(), object(ns, with(nil)), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "failed calling webhook")
	})
	if err := admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "x"}}); err != nil {
		t.Errorf("create a ConfigMap: got %v, want it accepted", err)
	}
	before.SetLabels(map[string]string{"a": "b"})
	if err := admin.Update(t.Context(), before); err != nil {
		t.Errorf("set a label: got %v, want it accepted", err)
	}
	if err := admin.Delete(t.Context(), before); err != nil {
		t.Errorf("delete a capture: got %v, want it accepted", err)
	}
}
