//go:build e2e

package security

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/sealed"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

// The keeper's port answers only clients with the one certificate made for it. It refuses clients without a
// certificate, strangers, and the manager with the pair of another capture. The requests come from a user's Pod,
// because the test does not rely on a NetworkPolicy. The kubelet of each node with a Pod of the capture may read the capture's Secret, so the
// manager's key in it is sealed.
func TestAttackKeeperPort(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	from := cluster.Pod(t, ns, "mallory", cluster.ShellSpec())
	mine := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	another := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: cluster.AgentPod(t, mine)}}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(agent), agent); err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("%s:%d", agent.Status.PodIP, captureconfig.KeeperPort)
	selfMade, err := keeperapi.GeneratePairs(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(t *testing.T, pairs map[string][]byte) (int, error) {
		t.Helper()
		// The attacker skips the check of the server's certificate.
		c := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
		if pairs != nil {
			pair, err := tls.X509KeyPair(pairs[captureconfig.SecretClientCert], pairs[captureconfig.SecretClientKey])
			if err != nil {
				t.Fatal(err)
			}
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		header := http.Header{}
		keeperapi.SetVersion(header)
		status, _, err := fromPod(t, from, address, c, http.MethodGet, keeperapi.PathProgress, header, nil)
		return status, err
	}
	t.Run("protected", func(t *testing.T) {
		for name, pairs := range map[string]map[string][]byte{
			"no certificate": nil, "a certificate of one's own": selfMade, "another capture's pair": opened(t, secretOf(t, another)),
			"the keeper's own pair": {captureconfig.SecretClientCert: secretOf(t, mine).Data[captureconfig.SecretServerCert], captureconfig.SecretClientKey: secretOf(t, mine).Data[captureconfig.SecretServerKey]},
		} {
			status, err := ask(t, pairs)
			for tries := 0; errors.Is(err, io.EOF) && tries < 5; tries++ { // the tunnel through the Pod closed before the TLS alert arrived
				status, err = ask(t, pairs)
			}
			if err == nil || !strings.Contains(err.Error(), "tls:") {
				t.Errorf("%s: status %d, error %v, want the handshake refused", name, status, err)
			}
		}
	})
	t.Run("protected: the Secret, as a kubelet may read it", func(t *testing.T) {
		data := secretOf(t, mine).Data
		if _, err := tls.X509KeyPair(data[captureconfig.SecretClientCert], data[captureconfig.SecretClientKey]); err == nil {
			t.Error("it has the manager's key")
		}
	})
	t.Run("control: the manager's pair", func(t *testing.T) {
		if status, err := ask(t, opened(t, secretOf(t, mine))); err != nil || status != http.StatusOK {
			t.Errorf("status %d, error %v, want 200", status, err)
		}
	})
}

// Only the API server calls the webhook; other clients that reach its port do not know its path. The prize would be a
// stamp for another user, which is worthless while the webhook writes its own.
func TestAttackWebhookPort(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	from := cluster.Pod(t, ns, "mallory", cluster.ShellSpec())
	cluster.Bind(t, ns, "mallory", "edit")
	pc := &sondev1.PacketCapture{
		TypeMeta:   metav1.TypeMeta{APIVersion: sondev1.GroupVersion.String(), Kind: "PacketCapture"},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "forged"}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "60s", RetainFor: "1h"},
	}
	raw, err := json.Marshal(pc)
	if err != nil {
		t.Fatal(err)
	}
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID("u"), Operation: admissionv1.Create, Namespace: ns, Name: pc.Name, Kind: metav1.GroupVersionKind{Kind: "PacketCapture"},
			UserInfo: authenticationv1.UserInfo{Username: "kubernetes-admin", Groups: []string{"system:masters"}}, Object: runtime.RawExtension{Raw: raw},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(t *testing.T, path string) (int, admissionv1.AdmissionReview) {
		t.Helper()
		c := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
		status, body, err := fromPod(t, from, serviceAddress(t, "sonde-webhook"), c, http.MethodPost, path, http.Header{"Content-Type": {"application/json"}}, review)
		if err != nil {
			t.Fatal(err)
		}
		var answer admissionv1.AdmissionReview
		_ = json.Unmarshal(body, &answer) // an error of the server is no review
		return status, answer
	}
	var hook admissionregistrationv1.MutatingWebhookConfiguration
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Name: platformcontroller.ConfigurationName}, &hook); err != nil {
		t.Fatal(err)
	}
	t.Run("protected", func(t *testing.T) {
		for _, path := range []string{"", "/", "/" + strings.Repeat("0", 32), "/../", "/%2e%2e/"} {
			if status, answer := ask(t, webhookpath.PacketCapture+path); status == http.StatusOK || answer.Response != nil {
				t.Errorf("%q: status %d, answer %+v, want none", path, status, answer.Response)
			}
		}
		wantForbidden(t, cluster.As(t, "mallory").Get(t.Context(), client.ObjectKeyFromObject(&hook), &hook), "mutatingwebhookconfigurations")
	})
	// A path leaks through errors of the API server while the webhook is unreachable.
	t.Run("protected: a path that leaked some hours ago", func(t *testing.T) {
		key := &corev1.Secret{}
		if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: stamp.SecretName}, key); err != nil {
			t.Fatal(err)
		}
		past := clocktesting.NewFakePassiveClock(time.Now().Add(-2 * webhookpath.Period))
		leaked, _ := webhookpath.New(key.Data["key"], past).Current()
		if status, answer := ask(t, webhookpath.PacketCapture+leaked); status != http.StatusNotFound || answer.Response != nil {
			t.Errorf("status %d, answer %+v, want none", status, answer.Response)
		}
	})
	t.Run("control: the secret path", func(t *testing.T) {
		status, answer := ask(t, *hook.Webhooks[0].ClientConfig.Service.Path)
		if status != http.StatusOK || answer.Response == nil || !answer.Response.Allowed {
			t.Fatalf("status %d, answer %+v, want the stamp of an admin", status, answer.Response)
		}
		pc.Annotations = stampIn(t, answer.Response.Patch)
		if !strings.Contains(pc.Annotations[sondev1.AnnotationRequester], "kubernetes-admin") {
			t.Fatalf("annotations %v, want a stamp for kubernetes-admin", pc.Annotations)
		}
	})
	// Even with the stamp the attacker gains nothing: the webhook refuses them or overwrites the requester.
	t.Run("protected: the stamp in hand", func(t *testing.T) {
		mallory := cluster.As(t, "mallory")
		wantForbidden(t, mallory.Create(t.Context(), pc.DeepCopy()), "capture")
		cluster.Bind(t, ns, "mallory", "admin")
		cluster.CreateEventually(t, mallory, pc)
		if claim, err := stamp.ParseClaim(pc.Annotations[sondev1.AnnotationRequester]); err != nil || claim.Requester.Username != "mallory" {
			t.Errorf("the stamp is %s's (%v), want mallory's", claim.Requester.Username, err)
		}
	})
}

// The manager's other ports serve nothing without a token, except health, which only says that the manager lives.
func TestAttackManagerPorts(t *testing.T) {
	cluster.ManagerFlag(t, "--metrics-bind-address=:8443")
	ns := cluster.Namespace(t, nil)
	from := cluster.Pod(t, ns, "mallory", cluster.ShellSpec())
	ip := managerIP(t)
	c := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	token := func(account string) http.Header {
		return http.Header{"Authorization": {"Bearer " + configOf(t, ns, account).BearerToken}}
	}
	get := func(t *testing.T, port string, tlsConfig *tls.Config, path string, header http.Header) (int, string) {
		t.Helper()
		status, body, err := fromPod(t, from, net.JoinHostPort(ip, port), tlsConfig, http.MethodGet, path, header, nil)
		if err != nil {
			t.Fatal(err)
		}
		return status, string(body)
	}
	t.Run("protected", func(t *testing.T) {
		for name, tc := range map[string]struct {
			port, path string
			tls        *tls.Config
			header     http.Header
			want       int
		}{
			"metrics":                      {port: "8443", path: "/metrics", tls: c, want: http.StatusUnauthorized},
			"metrics with a user's token":  {port: "8443", path: "/metrics", tls: c, header: token("default"), want: http.StatusForbidden},
			"results without a token":      {port: "9444", path: "/v1/namespaces/" + ns + "/packetcaptures/x/progress", tls: c, want: http.StatusUnauthorized},
			"results, any other path":      {port: "9444", path: "/debug/pprof/", tls: c, want: http.StatusNotFound},
			"webhook, any other path":      {port: "9443", path: "/debug/pprof/", tls: c, want: http.StatusNotFound},
			"health, any other path":       {port: "8081", path: "/debug/pprof/", want: http.StatusNotFound},
			"health, the metrics in plain": {port: "8081", path: "/metrics", want: http.StatusNotFound},
		} {
			if status, body := get(t, tc.port, tc.tls, tc.path, tc.header); status != tc.want {
				t.Errorf("%s: status %d, want %d: %s", name, status, tc.want, body)
			}
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, body := get(t, "8081", nil, path, nil); status != http.StatusOK || body != "ok" {
				t.Errorf("%s: status %d %q, want ok and nothing else", path, status, body)
			}
		}
		for _, path := range []string{"https:sonde-webhook:https", "https:sonde-results:9444", "sonde-results", "https:sonde-results:metrics"} {
			if status := cluster.GetRaw(t.Context(), t, "mallory", "/api/v1/namespaces/"+cluster.OperatorNamespace+"/services/"+path+"/proxy/", ""); status != http.StatusForbidden {
				t.Errorf("services/%s/proxy: status %d, want 403", path, status)
			}
		}
	})
	t.Run("control: the right to the metrics", func(t *testing.T) {
		allowMetrics(t, ns)
		cluster.Eventually(t, 15*time.Second, "metrics", func(context.Context) error {
			if status, body := get(t, "8443", c, "/metrics", token("default")); status != http.StatusOK || !strings.Contains(body, "sonde_") {
				return fmt.Errorf("status %d", status)
			}
			return nil
		})
		if status := cluster.GetRaw(t.Context(), t, "kubernetes-admin", "/api/v1/namespaces/"+cluster.OperatorNamespace+"/services/https:sonde-webhook:https/proxy/", ""); status == http.StatusOK {
			t.Errorf("the webhook's Service: got status %d", status)
		}
	})
}

// managerIP returns the address of a manager that is not terminating.
func managerIP(t *testing.T) string {
	t.Helper()
	var pods corev1.PodList
	if err := cluster.Admin.List(t.Context(), &pods, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels(cluster.Manager(t).Spec.Selector.MatchLabels)); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp.IsZero() {
			return pods.Items[i].Status.PodIP
		}
	}
	t.Fatal("found no manager's Pod")
	return ""
}

func secretOf(t *testing.T, pc *sondev1.PacketCapture) *corev1.Secret {
	t.Helper()
	var list corev1.SecretList
	if err := cluster.Admin.List(t.Context(), &list, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(pc.UID)}); err != nil || len(list.Items) != 1 {
		t.Fatalf("got %d Secrets of %s, want 1 (%v)", len(list.Items), pc.Name, err)
	}
	return &list.Items[0]
}

// opened returns the pairs of a Secret as the manager reads them.
func opened(t *testing.T, secret *corev1.Secret) map[string][]byte {
	t.Helper()
	var manager corev1.Secret
	err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: stamp.SecretName}, &manager)
	if err == nil {
		secret.Data[captureconfig.SecretClientKey], err = sealed.Open(manager.Data["key"], secret.Name, captureconfig.SecretClientKey, secret.Data[captureconfig.SecretClientKey])
	}
	if err != nil {
		t.Fatal(err)
	}
	return secret.Data
}

func serviceAddress(t *testing.T, name string) string {
	t.Helper()
	var s corev1.Service
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: name}, &s); err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(s.Spec.ClusterIP, fmt.Sprint(s.Spec.Ports[0].Port))
}

// fromPod sends a request from within a Pod. nc in the Pod carries the bytes, and TLS and HTTP run here.
func fromPod(t *testing.T, from *corev1.Pod, address string, c *tls.Config, method, path string, header http.Header, body []byte) (int, []byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialFrom(ctx, from, address) }, TLSClientConfig: c, DisableKeepAlives: true,
	}
	scheme := "https"
	if c == nil {
		scheme = "http"
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+"://sonde", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.URL.Opaque, req.Header = "//sonde"+path, header // as it is: nothing is cleaned on the way
	if req.Header == nil {
		req.Header = http.Header{}
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// dialFrom connects to an address from a Pod that has nc.
func dialFrom(ctx context.Context, from *corev1.Pod, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	cs, err := rest.RESTClientFor(cluster.CoreConfig(cluster.Config))
	if err != nil {
		return nil, err
	}
	req := cs.Post().Resource("pods").Namespace(from.Namespace).Name(from.Name).SubResource("exec").
		Param("container", "c").Param("stdin", "true").Param("stdout", "true").Param("command", "nc").Param("command", host).Param("command", port)
	ex, err := remotecommand.NewSPDYExecutor(cluster.Config, http.MethodPost, req.URL())
	if err != nil {
		return nil, err
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		_ = ex.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: there, Stdout: there}) // the connection ends with it
	}()
	return here, nil
}
