package monitoring_test

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/sonde-operator/sonde/controllers/capture"
	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
	"github.com/sonde-operator/sonde/internal/operator/monitoring"
)

var update = flag.Bool("update", false, "rewrite testdata/*.yaml")

func TestBuild(t *testing.T) {
	const path = "testdata/monitoring.yaml"
	var parts []string
	for _, o := range monitoring.Build("sonde-system") {
		b, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, string(b))
	}
	got := strings.Join(parts, "---\n")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), rewrite with -update:\n%s", path, diff)
	}
}

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
	monitor := monitoring.Build("sonde-system")[0]
	endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	got, _, _ := unstructured.NestedString(endpoints[0].(map[string]any), "tlsConfig", "ca", "secret", "key")
	if got != key {
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

// An alert on a metric that there is not never fires.
func TestAlertsAreOnMetricsThatExist(t *testing.T) {
	known := &described{names: []string{"up", "controller_runtime_reconcile_errors_total"}}
	if err := metrics.Register(known); err != nil {
		t.Fatal(err)
	}
	if err := known.Register(capture.Metrics{}); err != nil {
		t.Fatal(err)
	}
	rule := monitoring.Build("elsewhere")[1]
	groups := rule.Object["spec"].(map[string]any)["groups"].([]any)
	for _, r := range groups[0].(map[string]any)["rules"].([]any) {
		alert := r.(map[string]any)
		expr := alert["expr"].(string)
		used := regexp.MustCompile(`([a-z_]+)\{`).FindAllStringSubmatch(expr, -1)
		if len(used) == 0 || strings.Count(expr, `namespace="elsewhere",job="sonde-metrics"`) != len(used) {
			t.Errorf("%s is on series of others, too: %s", alert["alert"], expr)
		}
		for _, m := range used {
			if !slices.Contains(known.names, m[1]) {
				t.Errorf("%s is on %s, which the manager does not have: %v", alert["alert"], m[1], known.names)
			}
		}
		text := alert["annotations"].(map[string]any)
		if text["summary"] == "" || len(text["description"].(string)) < 100 || strings.Contains(text["description"].(string), "NAMESPACE") {
			t.Errorf("%s says %v: want what it means and what to do", alert["alert"], text)
		}
	}
}
