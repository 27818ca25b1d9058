//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/certs"
)

const metricsPort = 8443

// Metrics are for those who are bound to sonde-metrics-reader, and tell what has just happened.
func TestOpsMetrics(t *testing.T) {
	ns := namespace(t, nil)
	reader, other := metricsReader(t, ns), serviceAccountToken(t, ns, "other")
	pods := managerPods(t)
	for name, tc := range map[string]struct {
		token string
		want  int
	}{
		"bound":         {token: reader, want: 200},
		"another's":     {token: other, want: 403},
		"no token":      {want: 401},
		"no real token": {token: "made.up.here", want: 500}, // so controller-runtime answers to it
	} {
		t.Run(name, func(t *testing.T) {
			for i := range pods {
				if code, _ := scrape(t, &pods[i], tc.token); code != tc.want {
					t.Errorf("%s answers %d, want %d", pods[i].Name, code, tc.want)
				}
			}
		})
	}

	before := scrapeAll(t, reader)
	target := deployment(t, ns, "sink", 1, "sink")
	p := readyPods(t, target, 1)[0]
	sender := pod(t, ns, "sender", podSpec("idle"))
	pc := capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp"})
	running := scrapeAll(t, reader)
	send(t, sender, udpAddr(p.Status.PodIP), 1, 700)
	stop(t, pc)
	refused := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "cap-", Namespace: ns}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "24h"}}
	if err := admin.Create(t.Context(), refused); err == nil {
		t.Fatal("a capture above the ceiling was admitted")
	}
	perReplica := float64(len(pods)) // a gauge is told by each
	eventually(t, 30*time.Second, "metrics of the capture", func(context.Context) error {
		after := scrapeAll(t, reader)
		for series, want := range map[string]float64{
			"sonde_packets_total":                      700,
			`sonde_refusals_total{reason="Forbidden"}`: 1,
			`sonde_captures{phase="Completed"}`:        perReplica,
		} {
			if got := after[series] - before[series]; got != want {
				return fmt.Errorf("%s grew by %v, want %v", series, got, want)
			}
		}
		for _, place := range []string{"kernel", "ring", "writer", "unlisted"} {
			series := `sonde_dropped_packets_total{place="` + place + `"}`
			if got, ok := after[series]; !ok || got != before[series] {
				return fmt.Errorf("%s is %v (%t), want what it was", series, got, ok)
			}
		}
		if errs, ok := after[`controller_runtime_reconcile_errors_total{controller="packetcapture"}`]; !ok {
			return fmt.Errorf("no reconcile errors are told: %v", errs)
		}
		return nil
	})
	if got := running[`sonde_captures{phase="Capturing"}`] - before[`sonde_captures{phase="Capturing"}`]; got != perReplica {
		t.Errorf("captures that run grew by %v, want 1 on each replica", got)
	}
	if got := running["sonde_jobs"] - before["sonde_jobs"]; got != perReplica {
		t.Errorf("Jobs grew by %v, want 1 on each replica", got)
	}
}

// metricsReader makes a ServiceAccount that may read metrics and returns a token of it.
func metricsReader(t *testing.T, ns string) string {
	t.Helper()
	token := serviceAccountToken(t, ns, "reader")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sonde-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "reader"}},
	}
	if err := admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), binding) })
	return token
}

// serviceAccountToken makes a ServiceAccount and a token of it.
func serviceAccountToken(t *testing.T, ns, name string) string {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	if err := admin.Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	var token authenticationv1.TokenRequest
	if err := admin.SubResource("token").Create(t.Context(), sa, &token); err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// scrapeAll sums the series of all replicas.
func scrapeAll(t *testing.T, token string) map[string]float64 {
	t.Helper()
	sum := map[string]float64{}
	pods := managerPods(t)
	for i := range pods {
		code, text := scrape(t, &pods[i], token)
		if code != http.StatusOK {
			t.Fatalf("%s answers %d: %s", pods[i].Name, code, text)
		}
		for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
			series, value, ok := strings.Cut(lines.Text(), " ")
			if v, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.HasPrefix(series, "#") {
				sum[series] += v
			}
		}
	}
	return sum
}

// scrape asks one replica for its metrics, as Prometheus would, by a certificate that it can verify.
func scrape(t *testing.T, p *corev1.Pod, token string) (code int, text string) {
	t.Helper()
	var secret corev1.Secret
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: certs.SecretName}, &secret); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data["ca-bundle.crt"])
	address, stop, err := forward(p, metricsPort)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: certs.ServiceMetrics + "." + operatorNamespace + ".svc"}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Do(req)
	if err != nil {
		t.Fatalf("scrape %s: %v", p.Name, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
