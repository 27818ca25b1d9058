package wiring

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sonde-operator/sonde/controllers/capture"
	"github.com/sonde-operator/sonde/controllers/intercept"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/eventlimit"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
	"github.com/sonde-operator/sonde/webhooks/admission"
	interceptwebhook "github.com/sonde-operator/sonde/webhooks/intercept"
)

// interceptReviewInterval is how long an intercept lasts after its requester has lost the right. It is shorter than for captures,
// because the requester gets other people's credentials.
const interceptReviewInterval = time.Minute

// addIntercepts adds the controller and the webhook of InterceptRequests.
func (m *manager) addIntercepts(_ context.Context, mgr ctrl.Manager) error {
	reviews := access.NewReviewer(m.live)
	r := &intercept.Reconciler{
		Client: mgr.GetClient(), Live: m.live, PauseConfig: m.pauses, Options: m.Agent, Key: m.key,
		Access: reviews, Recent: access.NewCached(reviews, clock.RealClock{}, capture.RecentFor(interceptReviewInterval)),
		Users: m.users, Recorder: eventlimit.NewRecorder(mgr.GetEventRecorder("sonde"), mgr.GetScheme(), clock.RealClock{}), Clock: clock.RealClock{}, Watchdog: m.watchdog, Stowaway: &intercept.Stowaway{},
		Limits: m.Ceilings,
	}
	secret := webhookpath.New(m.key, clock.RealClock{})
	admission.Register(mgr.GetWebhookServer(), webhookpath.Intercept, secret, m.intake.Hook(&webhook.Admission{Handler: &interceptwebhook.Handler{
		Live: m.kindReads, Cache: mgr.GetClient(), Reviews: reviews, Key: m.key, OperatorNamespace: m.Agent.Namespace, Clock: clock.RealClock{},
	}}, nil))
	return r.SetupWithManager(mgr)
}
