package wiring

import (
	"context"
	"errors"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/health"
)

// addChecks adds the health checks. The kubelet restarts a manager that hangs or does not answer. A replica that could
// not decide is not ready and gets no requests.
func (m *manager) addChecks(ctx context.Context, mgr ctrl.Manager) error {
	cached := []client.Object{&sondev1.ResultAccess{}, &corev1.Pod{}, &batchv1.Job{}}
	for _, k := range kind.Captures {
		cached = append(cached, k.New())
	}
	synced, err := health.Synced(ctx, mgr.GetCache(), cached...)
	if err != nil {
		return err
	}
	return errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddHealthzCheck("hanging", m.watchdog.Check),
		mgr.AddReadyzCheck("certificate", m.serving.Ready),
		mgr.AddReadyzCheck("api", m.contact.Check),
		mgr.AddReadyzCheck("caches", synced),
		mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()),
	)
}
