package wiring

import (
	"context"
	"errors"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sonde-operator/sonde/controllers/collector"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/eventlimit"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
	"github.com/sonde-operator/sonde/webhooks/admission"
	collectorwebhook "github.com/sonde-operator/sonde/webhooks/collector"
)

// addCollectors adds the controller and the webhook of Collectors.
func (m *manager) addCollectors(_ context.Context, mgr ctrl.Manager) error {
	own, err := collector.NewCache(mgr.GetConfig(), mgr.GetScheme())
	if err != nil {
		return err
	}
	reviews := access.NewReviewer(m.live)
	r := &collector.Reconciler{
		Client: mgr.GetClient(), Own: own, Live: m.tenants, PauseConfig: m.pauses, Reviews: reviews,
		Permitted: func(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
			return access.OwnRight(ctx, m.live, what)
		},
		Key: m.key, Namespace: m.Agent.Namespace, Image: m.ReleaserImage,
		Recorder: eventlimit.NewRecorder(mgr.GetEventRecorder("sonde"), mgr.GetScheme(), clock.RealClock{}), Clock: clock.RealClock{}, Watchdog: m.watchdog,
	}
	admission.Register(mgr.GetWebhookServer(), webhookpath.Collector, webhookpath.New(m.key, clock.RealClock{}), m.intake.Hook(&webhook.Admission{Handler: &collectorwebhook.Handler{
		Cache: mgr.GetClient(), Live: m.kindReads, Reviews: reviews, Key: m.key, OperatorNamespace: m.Agent.Namespace, Clock: clock.RealClock{},
	}}, nil))
	return errors.Join(mgr.Add(own), r.SetupWithManager(mgr, own, m.pauses))
}
