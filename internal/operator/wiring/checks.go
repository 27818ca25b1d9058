package wiring

import (
	"context"
	"net/http"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/connections"
	"github.com/sonde-operator/sonde/internal/operator/health"
)

// addChecks adds the health checks. The kubelet restarts a manager that hangs or does not answer. A replica that could
// not decide is not ready and gets no requests.
func (m *manager) addChecks(ctx context.Context, mgr ctrl.Manager) error {
	cached := []client.Object{&sondev1.ResultAccess{}, &sondev1.FluentPVC{}, &sondev1.FluentPVCBinding{}, &sondev1.InterceptRequest{}, &sondev1.Collector{}, &corev1.Pod{}, &batchv1.Job{}}
	// Before it exists, the API server admits objects that no webhook has stamped, and these never run.
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: platformcontroller.ConfigurationName}}
	cached = append(cached, configuration)
	for _, k := range kind.Captures {
		cached = append(cached, k.New())
	}
	synced, err := health.Synced(ctx, mgr.GetCache(), cached...)
	if err != nil {
		return err
	}
	if m.HealthAddress == noAddress {
		return nil
	}
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {"ping": healthz.Ping, "hanging": m.watchdog.Check},
		"/readyz": {
			"certificate": m.serving.Ready, "api": m.contact.Check, "caches": synced,
			"webhook": mgr.GetWebhookServer().StartedChecker(), "results": m.results.Ready, "configuration": health.Exists(mgr.GetCache(), configuration),
		},
	} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler) // a single check
	}
	// controller-runtime's own server has no bounds.
	server, err := connections.Health(ctx, m.HealthAddress, mux)
	if err != nil {
		return err
	}
	return mgr.Add(server)
}
