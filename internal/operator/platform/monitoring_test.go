package platform_test

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sonde-operator/sonde/controllers/capture"
	"github.com/sonde-operator/sonde/controllers/fluentpvc"
	"github.com/sonde-operator/sonde/controllers/intercept"
	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
	"github.com/sonde-operator/sonde/internal/operator/platform"
)

// The bundle holds the authority of the certificate that is served, which may be an earlier one than ca.crt.
func TestPrometheusTrustsTheBundle(t *testing.T) {
	const key = "ca-bundle.crt"
	var secret corev1.Secret
	c := fake.NewClientBuilder().Build()
	m := certs.NewManager(c, "sonde-system", clock.RealClock{})
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "sonde-system", Name: certs.SecretName}, &secret); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(secret.Data[key], m.CABundle()) {
		t.Errorf("key %s is not the bundle", key)
	}
	monitor := typed[monitoringv1.ServiceMonitor](t, platform.Monitoring("sonde-system")[0])
	if got := monitor.Spec.Endpoints[0].TLSConfig.CA.Secret.Key; got != key {
		t.Errorf("the ServiceMonitor trusts key %q, want %s", got, key)
	}
}

// described collects the names of metrics.
type described struct{ names []string }

func (d *described) Register(c prometheus.Collector) error {
	out := make(chan *prometheus.Desc, 16)
	c.Describe(out)
	close(out)
	for desc := range out {
		d.names = append(d.names, regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(desc.String())[1])
	}
	return nil
}

func (d *described) MustRegister(...prometheus.Collector) {}

func (d *described) Unregister(prometheus.Collector) bool { return false }

// An alert on a missing metric never fires.
func TestAlertsAreOnMetricsThatExist(t *testing.T) {
	known := &described{names: []string{"up", "controller_runtime_reconcile_errors_total"}}
	if err := metrics.Register(known); err != nil {
		t.Fatal(err)
	}
	for _, gauges := range []metrics.Gauges{capture.Metrics(nil, ""), fluentpvc.Metrics(nil), intercept.Metrics(nil, "")} {
		if err := known.Register(gauges); err != nil {
			t.Fatal(err)
		}
	}
	rule := typed[monitoringv1.PrometheusRule](t, platform.Monitoring("elsewhere")[1])
	for _, alert := range rule.Spec.Groups[0].Rules {
		expr := alert.Expr.String()
		used := regexp.MustCompile(`([a-z_]+)\{`).FindAllStringSubmatch(expr, -1)
		if len(used) == 0 || strings.Count(expr, `namespace="elsewhere",job="sonde-metrics"`) != len(used) {
			t.Errorf("%s reads series of others, too: %s", alert.Alert, expr)
		}
		for _, m := range used {
			if !slices.Contains(known.names, m[1]) {
				t.Errorf("%s reads %s, which the manager does not have: %v", alert.Alert, m[1], known.names)
			}
		}
		summary, description := alert.Annotations["summary"], alert.Annotations["description"]
		if summary == "" || len(description) < 100 || strings.Contains(description, "NAMESPACE") {
			t.Errorf("%s says %q, %q: want what it means and what to do", alert.Alert, summary, description)
		}
	}
}
