// Package webhooktest has the cluster, the users and the requests that the tests of the webhooks share.
package webhooktest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
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
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

var (
	// Key of the stamps.
	Key = bytes.Repeat([]byte{7}, stamp.KeyBytes)
	// Now is the time at which the webhooks decide.
	Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// OperatorNamespace is the operator's own.
const OperatorNamespace = "sonde-system"

// Codes of refusals.
const (
	Forbidden = http.StatusForbidden
	Invalid   = http.StatusUnprocessableEntity
	Failed    = http.StatusInternalServerError
)

// Scheme has the types of Kubernetes and Sonde.
func Scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sondev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Rights that a user has: "pods/NAMESPACE" and "nodes". Err is the error of an API server that does not answer.
type Rights struct {
	granted map[string]bool
	// Verb of all of them; capture if empty.
	Verb string
	Err  error

	mu sync.Mutex // requests are concurrent
	// Asked are the rights that were reviewed, in order.
	Asked []string
}

// ReviewPods implements access.Reviews.
func (r *Rights) ReviewPods(_ context.Context, verb string, who access.Requester, namespace string) (access.Decision, error) {
	return r.answer(verb, who, "pods/"+namespace)
}

// ReviewNodes implements access.Reviews.
func (r *Rights) ReviewNodes(_ context.Context, verb string, who access.Requester) (access.Decision, error) {
	return r.answer(verb, who, "nodes")
}

func (r *Rights) answer(verb string, who access.Requester, what string) (access.Decision, error) {
	r.mu.Lock()
	r.Asked = append(r.Asked, what)
	r.mu.Unlock()
	if r.granted[what] && verb == cmp.Or(r.Verb, sondev1.VerbCapture) {
		return access.Decision{Allowed: true}, r.Err
	}
	return access.Decision{Reason: who.Username + " lacks " + verb + " on " + what}, r.Err
}

// May returns the rights of a user who has the verb capture on each of these.
func May(what ...string) *Rights {
	r := &Rights{granted: map[string]bool{}}
	for _, w := range what {
		r.granted[w] = true
	}
	return r
}

// MayTrace returns the rights of a user who has the verb trace, and not capture.
func MayTrace(what ...string) *Rights {
	r := May(what...)
	r.Verb = sondev1.VerbTrace
	return r
}

// Namespace returns a namespace with the UID "uid-NAME".
func Namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: labels}}
}

// Meta returns the metadata of an object in a namespace.
func Meta(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

func podSpec(host bool) corev1.PodSpec { return corev1.PodSpec{HostNetwork: host} }

func template(host bool) corev1.PodTemplateSpec { return corev1.PodTemplateSpec{Spec: podSpec(host)} }

// Objects of a cluster: shop and bank are tenants', hub is open, leaving is being deleted.
func Objects() []client.Object {
	leaving := Namespace("leaving", nil)
	leaving.DeletionTimestamp, leaving.Finalizers = &metav1.Time{Time: Now}, []string{"kubernetes.io/x"}
	return []client.Object{
		Namespace("shop", nil), Namespace("bank", nil), Namespace(OperatorNamespace, nil), leaving,
		Namespace("hub", map[string]string{sondev1.LabelHub: "true"}),
		Namespace("nohub", map[string]string{sondev1.LabelHub: "false"}),
		&appsv1.Deployment{ObjectMeta: Meta("shop", "web"), Spec: appsv1.DeploymentSpec{Template: template(false)}},
		&appsv1.Deployment{ObjectMeta: Meta("shop", "edge"), Spec: appsv1.DeploymentSpec{Template: template(true)}},
		&appsv1.StatefulSet{ObjectMeta: Meta("shop", "db"), Spec: appsv1.StatefulSetSpec{Template: template(false)}},
		&appsv1.StatefulSet{ObjectMeta: Meta("shop", "hostdb"), Spec: appsv1.StatefulSetSpec{Template: template(true)}},
		&appsv1.DaemonSet{ObjectMeta: Meta("shop", "log"), Spec: appsv1.DaemonSetSpec{Template: template(true)}},
		&corev1.Pod{ObjectMeta: Meta("shop", "one"), Spec: podSpec(false)},
		&corev1.Pod{ObjectMeta: Meta("shop", "hostone"), Spec: podSpec(true)},
		&corev1.Pod{ObjectMeta: Meta("shop", "seesall"), Spec: corev1.PodSpec{HostPID: true}},
		&appsv1.Deployment{ObjectMeta: Meta("bank", "vault"), Spec: appsv1.DeploymentSpec{Template: template(false)}},
	}
}

// Reader answers as an API server that has objects.
func Reader(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(Scheme(t)).WithObjects(objects...).Build()
}

// Request is a request of user alice. object and old may be nil.
func Request(t *testing.T, op admissionv1.Operation, kind, ns string, object, old any) webhook.AdmissionRequest {
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
	return webhook.AdmissionRequest{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "r-1", Operation: op, Namespace: ns, Name: "mine", Kind: metav1.GroupVersionKind{Kind: kind},
		UserInfo: authenticationv1.UserInfo{Username: "alice", Groups: []string{"dev"}},
		Object:   raw(object), OldObject: raw(old),
	}}
}

// Patched applies the answer's patch to the request's object, as the API server does.
func Patched(t *testing.T, req webhook.AdmissionRequest, resp webhook.AdmissionResponse, into any) {
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

// Refused fails the test unless resp is a refusal with this code that says each of texts.
func Refused(t *testing.T, resp webhook.AdmissionResponse, code int32, texts ...string) {
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
	if len(resp.Result.Message) > admission.MaxMessageBytes+64 {
		t.Errorf("message of %d bytes", len(resp.Result.Message))
	}
	if len(resp.Patches) != 0 {
		t.Errorf("a refusal with patches: %v", resp.Patches)
	}
}

// Clock stands still at Now.
func Clock() *clocktesting.FakePassiveClock { return clocktesting.NewFakePassiveClock(Now) }
