package webhooks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

var (
	testKey = bytes.Repeat([]byte{7}, stamp.KeyBytes)
	now     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sondev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// rights that a user has: "pods/NAMESPACE" and "nodes". An error stands for an API server that does not answer.
type rights struct {
	granted map[string]bool
	verb    string // of all of them; capture if empty
	err     error

	mu    sync.Mutex // requests come at the same time
	asked []string
}

func (r *rights) ReviewPods(_ context.Context, verb string, who access.Requester, namespace string) (access.Decision, error) {
	return r.answer(verb, who, "pods/"+namespace)
}

func (r *rights) ReviewNodes(_ context.Context, verb string, who access.Requester) (access.Decision, error) {
	return r.answer(verb, who, "nodes")
}

func (r *rights) answer(verb string, who access.Requester, what string) (access.Decision, error) {
	r.mu.Lock()
	r.asked = append(r.asked, what)
	r.mu.Unlock()
	if r.granted[what] && verb == cmp.Or(r.verb, sondev1.VerbCapture) {
		return access.Decision{Allowed: true}, r.err
	}
	return access.Decision{Reason: who.Username + " lacks " + verb + " on " + what}, r.err
}

func may(what ...string) *rights {
	r := &rights{granted: map[string]bool{}}
	for _, w := range what {
		r.granted[w] = true
	}
	return r
}

// mayTrace has the verb trace, and not the verb capture.
func mayTrace(what ...string) *rights {
	r := may(what...)
	r.verb = sondev1.VerbTrace
	return r
}

// filters refuses texts with "bad" in them and is broken by "boom".
type filters struct{ compiled []string }

func (f *filters) Compile(_ context.Context, expression string, link pcapfilter.LinkType, snapLen int) (bpfprog.Program, error) {
	f.compiled = append(f.compiled, expression)
	switch {
	case link != pcapfilter.LinkEthernet || snapLen < 0 || snapLen > pcapfilter.MaxSnapLen:
		return nil, errors.New("called with a handle that there is not")
	case strings.Contains(expression, "bad"):
		return nil, &pcapfilter.SyntaxError{Expression: expression, Message: "syntax error: see pcap-filter(7)"}
	case strings.Contains(expression, "boom"):
		return nil, errors.New("sandbox broken")
	}
	return nil, nil
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: labels}}
}

func meta(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

func podSpec(host bool) corev1.PodSpec { return corev1.PodSpec{HostNetwork: host} }

func template(host bool) corev1.PodTemplateSpec { return corev1.PodTemplateSpec{Spec: podSpec(host)} }

// world is a cluster: shop and bank are tenants', hub is open, leaving is being deleted.
func world() []client.Object {
	leaving := namespace("leaving", nil)
	leaving.DeletionTimestamp, leaving.Finalizers = &metav1.Time{Time: now}, []string{"kubernetes.io/x"}
	return []client.Object{
		namespace("shop", nil), namespace("bank", nil), namespace("sonde-system", nil), leaving,
		namespace("hub", map[string]string{sondev1.LabelHub: "true"}),
		namespace("nohub", map[string]string{sondev1.LabelHub: "false"}),
		&appsv1.Deployment{ObjectMeta: meta("shop", "web"), Spec: appsv1.DeploymentSpec{Template: template(false)}},
		&appsv1.Deployment{ObjectMeta: meta("shop", "edge"), Spec: appsv1.DeploymentSpec{Template: template(true)}},
		&appsv1.StatefulSet{ObjectMeta: meta("shop", "db"), Spec: appsv1.StatefulSetSpec{Template: template(false)}},
		&appsv1.StatefulSet{ObjectMeta: meta("shop", "hostdb"), Spec: appsv1.StatefulSetSpec{Template: template(true)}},
		&appsv1.DaemonSet{ObjectMeta: meta("shop", "log"), Spec: appsv1.DaemonSetSpec{Template: template(true)}},
		&corev1.Pod{ObjectMeta: meta("shop", "one"), Spec: podSpec(false)},
		&corev1.Pod{ObjectMeta: meta("shop", "hostone"), Spec: podSpec(true)},
		&corev1.Pod{ObjectMeta: meta("shop", "seesall"), Spec: corev1.PodSpec{HostPID: true}},
		&appsv1.Deployment{ObjectMeta: meta("bank", "vault"), Spec: appsv1.DeploymentSpec{Template: template(false)}},
	}
}

func liveReader(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).Build()
}

func request(t *testing.T, op admissionv1.Operation, kind, ns string, object, old any) admission.Request {
	t.Helper()
	raw := func(o any) runtime.RawExtension {
		if o == nil {
			return runtime.RawExtension{}
		}
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: b}
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "r-1", Operation: op, Namespace: ns, Name: "mine", Kind: metav1.GroupVersionKind{Kind: kind},
		UserInfo: authenticationv1.UserInfo{Username: "alice", Groups: []string{"dev"}},
		Object:   raw(object), OldObject: raw(old),
	}}
}

// patched applies the answer's patch to the request's object, as the API server does.
func patched(t *testing.T, req admission.Request, resp admission.Response, into any) {
	t.Helper()
	if err := resp.Complete(req); err != nil {
		t.Fatal(err)
	}
	p, err := jsonpatch.DecodePatch(resp.Patch)
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Apply(req.Object.Raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

// refused fails the test unless resp is a refusal with this code that says each of texts.
func refused(t *testing.T, resp admission.Response, code int32, texts ...string) {
	t.Helper()
	if resp.Allowed || resp.Result == nil {
		t.Fatalf("admitted, want a refusal that says %q", texts)
	}
	if resp.Result.Code != code {
		t.Errorf("code %d, want %d (%s)", resp.Result.Code, code, resp.Result.Message)
	}
	for _, want := range texts {
		if !strings.Contains(resp.Result.Message, want) {
			t.Errorf("message %q lacks %q", resp.Result.Message, want)
		}
	}
	if len(resp.Result.Message) > maxMessage+64 {
		t.Errorf("message of %d bytes", len(resp.Result.Message))
	}
	if len(resp.Patches) != 0 {
		t.Errorf("a refusal with patches: %v", resp.Patches)
	}
}

func fixedClock() *clocktesting.FakePassiveClock { return clocktesting.NewFakePassiveClock(now) }
