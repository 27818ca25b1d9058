package wiring

import (
	"context"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/fewreads"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
	"github.com/sonde-operator/sonde/webhooks/admission"
	"github.com/sonde-operator/sonde/webhooks/capture"
	"github.com/sonde-operator/sonde/webhooks/gate"
	"github.com/sonde-operator/sonde/webhooks/resultaccess"
)

// Objects of tenants that are read at once: by the webhooks of Sonde's kinds, whose intake bounds how many reads of a namespace
// or user wait; and by those of Pods.
var (
	webhookReads    = fewreads.Limits{Places: 4, Bytes: 1 << 20}
	podWebhookReads = fewreads.Limits{Places: 2}
	// A binding has at most 32 KiB of template. Of a larger claim it is enough to know that it exists.
	sidecarReads = fewreads.Limits{Places: 2, Bytes: 128 << 10}
)

// addWebhooks adds the webhooks of Sonde's kinds and of Pods.
func (m *manager) addWebhooks(_ context.Context, mgr ctrl.Manager) error {
	reviews := access.NewReviewer(m.live)
	server := mgr.GetWebhookServer()
	secret := webhookpath.New(m.key, clock.RealClock{})
	quota := &capture.Quota{
		Cache: mgr.GetClient(), Unfinished: m.Ceilings.UnfinishedPerNamespace, Existing: m.Ceilings.ExistingPerNamespace, Clock: clock.RealClock{},
	}
	// A flood of captures must not delay the Pods of others, so these have bounds of their own.
	m.intake, m.podIntake = admission.NewIntake(), admission.NewPodIntake()
	m.podReads = fewreads.New(m.live, m.Agent.Namespace, podWebhookReads)
	for _, w := range []struct {
		path   string
		kind   kind.Capture
		checks capture.Checks
	}{
		{webhookpath.PacketCapture, kind.PacketCapture, &capture.PacketCaptureChecks{Filters: m.filters}},
		{webhookpath.Trace, kind.Trace, capture.TraceChecks{OperatorNamespace: m.Agent.Namespace}},
	} {
		admission.Register(server, w.path, secret, m.intake.Hook(&webhook.Admission{Handler: &capture.Handler{
			Kind: w.kind, Checks: w.checks,
			Live: m.kindReads, Cache: mgr.GetClient(), Reviews: reviews, Key: m.key, OperatorNamespace: m.Agent.Namespace, Clock: clock.RealClock{}, Ceilings: m.Ceilings,
			Quota: quota,
		}}, nil))
	}
	admission.Register(server, webhookpath.ResultAccess, secret, m.intake.Hook(&webhook.Admission{Handler: &resultaccess.Handler{
		Live: m.kindReads, Cache: mgr.GetClient(), Reviews: reviews, Key: m.key, Clock: clock.RealClock{},
	}}, nil))
	for _, w := range []struct {
		path     string
		required bool
	}{{webhookpath.Gate, false}, {webhookpath.GateRequired, true}} {
		handler := &gate.Handler{
			Lookup: &gate.TraceLookup{
				Cache: mgr.GetClient(), Live: m.podReads, Key: m.key, Image: m.Agent.Image, Ceilings: m.Ceilings, Clock: clock.RealClock{},
			},
			OperatorNamespace: m.Agent.Namespace, Required: w.required,
		}
		admission.Register(server, w.path, secret, m.podIntake.Hook(&webhook.Admission{Handler: handler}, handler.Unread))
	}
	return nil
}
