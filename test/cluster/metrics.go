package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/operator/certs"
)

// MetricsPort is the manager's port for metrics.
const MetricsPort = 8443

// MetricsReader creates a ServiceAccount that may read metrics and returns a token for it.
func MetricsReader(t *testing.T, ns string) string {
	t.Helper()
	token := ServiceAccountToken(t, ns, "reader")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sonde-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "reader"}},
	}
	if err := Admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Admin.Delete(context.WithoutCancel(t.Context()), binding) })
	return token
}

// ScrapeAll returns the metrics of all replicas, summed by series.
func ScrapeAll(t *testing.T, token string) map[string]float64 {
	t.Helper()
	sum := map[string]float64{}
	pods := ManagerPods(t)
	for i := range pods {
		code, text := Scrape(t, &pods[i], token)
		if code != http.StatusOK {
			t.Fatalf("scrape %s: status %d, want 200: %s", pods[i].Name, code, text)
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

// Scrape reads the metrics of one replica like Prometheus, and verifies the certificate.
func Scrape(t *testing.T, p *corev1.Pod, token string) (code int, text string) {
	t.Helper()
	var secret corev1.Secret
	if err := Admin.Get(t.Context(), client.ObjectKey{Namespace: OperatorNamespace, Name: certs.SecretName}, &secret); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data["ca-bundle.crt"])
	address, stop, err := Forward(p, MetricsPort)
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
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: certs.ServiceMetrics + "." + OperatorNamespace + ".svc"}}
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
