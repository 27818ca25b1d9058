// Package monitoring builds what has Prometheus collect the manager's metrics and warn of what they
// tell, for clusters with the Prometheus operator's API.
package monitoring

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/operator/platform"
)

// name of both objects.
const name = "sonde"

// port of the metrics Service.
const port = "metrics"

// +kubebuilder:rbac:groups=monitoring.coreos.com,namespace=sonde-system,resources=prometheusrules;servicemonitors,resourceNames=sonde,verbs=create;get;list;watch;patch;delete

// Build returns the ServiceMonitor and the PrometheusRule of an install in this namespace.
func Build(namespace string) []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		object("ServiceMonitor", namespace, serviceMonitor(namespace)),
		object("PrometheusRule", namespace, map[string]any{"groups": []any{group(namespace)}}),
	}
}

func object(kind, namespace string, spec map[string]any) *unstructured.Unstructured {
	return platform.New(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: kind}, namespace, name, map[string]any{"spec": spec})
}

// serviceMonitor has Prometheus show its own token, which must be allowed to get /metrics, and trust the
// certificate authorities that the operator made, and no others: after a rotation the certificate is for a
// while still of the earlier one.
func serviceMonitor(namespace string) map[string]any {
	return map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{
			sondev1.LabelAppName: "sonde", "app.kubernetes.io/component": "metrics",
		}},
		"endpoints": []any{map[string]any{
			"port": port, "path": "/metrics", "scheme": "https",
			"bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
			"tlsConfig": map[string]any{
				"serverName": certs.ServiceMetrics + "." + namespace + ".svc",
				"ca":         map[string]any{"secret": map[string]any{"name": certs.SecretName, "key": certs.KeyBundle}},
			},
		}},
	}
}
