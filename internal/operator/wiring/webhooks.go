package wiring

import (
	"context"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
	"github.com/sonde-operator/sonde/webhooks"
)

// addWebhooks adds the webhooks of Sonde's kinds and of Pods.
func (m *manager) addWebhooks(_ context.Context, mgr ctrl.Manager) error {
	reviews := access.NewReviewer(m.live)
	server := mgr.GetWebhookServer()
	secret := webhookpath.Secret(m.key)
	for _, w := range []struct {
		path   string
		kind   kind.Capture
		checks webhooks.Checks
	}{
		{webhookpath.PacketCapture, kind.PacketCapture, &webhooks.PacketCaptureChecks{Filters: m.filters}},
		{webhookpath.Trace, kind.Trace, webhooks.TraceChecks{OperatorNamespace: m.Agent.Namespace}},
	} {
		webhooks.Register(server, w.path, secret, &admission.Webhook{Handler: &webhooks.CaptureHandler{
			Kind: w.kind, Checks: w.checks,
			Live: m.live, Reviews: reviews, Key: m.key, OperatorNamespace: m.Agent.Namespace, Clock: clock.RealClock{}, Ceilings: m.Ceilings,
		}})
	}
	webhooks.Register(server, webhookpath.ResultAccess, secret, &admission.Webhook{Handler: &webhooks.ResultAccessHandler{
		Live: m.live, Reviews: reviews, Key: m.key, Clock: clock.RealClock{},
	}})
	for _, w := range []struct {
		path     string
		required bool
	}{{webhookpath.Gate, false}, {webhookpath.GateRequired, true}} {
		webhooks.Register(server, w.path, secret, &admission.Webhook{Handler: &webhooks.GateHandler{
			Gates: &webhooks.TraceGates{
				Cache: mgr.GetClient(), Live: m.live, Key: m.key, Image: m.Agent.Image, Ceilings: m.Ceilings, Clock: clock.RealClock{},
			},
			OperatorNamespace: m.Agent.Namespace, Required: w.required,
		}})
	}
	return nil
}
