package platform

import (
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/certs"
)

// metricsPort of the metrics Service.
const metricsPort = "metrics"

// +kubebuilder:rbac:groups=monitoring.coreos.com,namespace=sonde-system,resources=prometheusrules;servicemonitors,resourceNames=sonde,verbs=create;get;list;watch;patch;delete

// Monitoring returns the ServiceMonitor and the PrometheusRule of an install in this namespace. Prometheus collects the
// manager's metrics by the first and alerts by the second.
func Monitoring(namespace string) []*unstructured.Unstructured {
	monitor := content(monitoringv1.SchemeGroupVersion.WithKind(monitoringv1.ServiceMonitorsKind), &monitoringv1.ServiceMonitor{
		ObjectMeta: meta(namespace, objectName), Spec: serviceMonitor(namespace),
	})
	rule := content(monitoringv1.SchemeGroupVersion.WithKind(monitoringv1.PrometheusRuleKind), &monitoringv1.PrometheusRule{
		ObjectMeta: meta(namespace, objectName),
		Spec:       monitoringv1.PrometheusRuleSpec{Groups: []monitoringv1.RuleGroup{alertGroup(namespace)}},
	})
	return []*unstructured.Unstructured{monitor, rule}
}

// serviceMonitor has Prometheus send its own token, which must be allowed to get /metrics. Prometheus trusts all of the
// operator's certificate authorities: after a rotation the certificate is for a while still one of the earlier
// authority.
func serviceMonitor(namespace string) monitoringv1.ServiceMonitorSpec {
	endpoint := monitoringv1.Endpoint{
		Port: metricsPort, Path: "/metrics", Scheme: new(monitoringv1.Scheme("https")), // the CRDs of older releases refuse HTTPS
		BearerTokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token", //nolint:staticcheck // its successor, authorization, can only name a Secret
	}
	endpoint.TLSConfig = &monitoringv1.TLSConfig{SafeTLSConfig: monitoringv1.SafeTLSConfig{
		ServerName: new(certs.ServiceMetrics + "." + namespace + ".svc"),
		CA: monitoringv1.SecretOrConfigMap{Secret: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: certs.SecretName}, Key: certs.KeyBundle,
		}},
	}}
	return monitoringv1.ServiceMonitorSpec{
		Selector: metav1.LabelSelector{MatchLabels: map[string]string{
			sondev1.LabelAppName: "sonde", "app.kubernetes.io/component": "metrics",
		}},
		Endpoints: []monitoringv1.Endpoint{endpoint},
	}
}
