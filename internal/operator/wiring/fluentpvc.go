package wiring

import (
	"context"
	"errors"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/controllers/fluentpvc"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/eventlimit"
	"github.com/sonde-operator/sonde/internal/operator/fewreads"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
	"github.com/sonde-operator/sonde/webhooks/admission"
	fluentpvcwebhook "github.com/sonde-operator/sonde/webhooks/fluentpvc"
	"github.com/sonde-operator/sonde/webhooks/sidecar"
)

// addFluentPVC adds the controller of bindings and the webhooks of FluentPVCs and of Pods that name one.
func (m *manager) addFluentPVC(ctx context.Context, mgr ctrl.Manager) error {
	own, err := fluentpvc.NewCache(ctx, mgr.GetConfig(), m.Agent.Namespace, mgr.GetScheme())
	if err != nil {
		return err
	}
	verify := func(f *sondev1.FluentPVC) error {
		_, err := stamp.VerifyFluentPVC(m.key, f)
		return err
	}
	permitted := func(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
		return access.OwnRight(ctx, m.live, what)
	}
	r := &fluentpvc.Reconciler{
		Client: mgr.GetClient(), Own: own, Live: m.tenants, Verify: verify, Permitted: permitted, PauseConfig: m.pauses, Key: m.key, Namespace: m.Agent.Namespace,
		Recorder: eventlimit.NewRecorder(mgr.GetEventRecorder("sonde"), mgr.GetScheme(), clock.RealClock{}), Clock: clock.RealClock{}, Watchdog: m.watchdog,
	}
	definitions := &fluentpvc.DefinitionReconciler{
		Client: mgr.GetClient(), Configuration: m.podConfiguration, Verify: verify, Clock: clock.RealClock{}, Watchdog: m.watchdog,
	}
	m.addFluentPVCWebhooks(mgr, own.Granted, verify)
	return errors.Join(definitions.SetupWithManager(mgr, m.podConfiguration), mgr.Add(own), fluentpvc.IndexFields(ctx, mgr.GetFieldIndexer()), r.SetupWithManager(mgr, own, m.pauses))
}

func (m *manager) addFluentPVCWebhooks(mgr ctrl.Manager, granted sidecar.Granted, verify func(*sondev1.FluentPVC) error) {
	server, secret := mgr.GetWebhookServer(), webhookpath.New(m.key, clock.RealClock{})
	admission.Register(server, webhookpath.FluentPVC, secret, m.intake.HookCluster(&webhook.Admission{Handler: &fluentpvcwebhook.Handler{
		Live: m.live, Reviews: access.NewReviewer(m.live), Key: m.key, OperatorNamespace: m.Agent.Namespace, Clock: clock.RealClock{},
	}}, nil))
	admission.Register(server, webhookpath.Sidecar, secret, m.podIntake.Hook(&webhook.Admission{Handler: &sidecar.Handler{
		Cache: mgr.GetClient(), Live: fewreads.New(m.live, m.Agent.Namespace, sidecarReads), Rights: sidecar.NewOwnRights(granted, m.live, clock.RealClock{}), Bindings: sidecar.NewBindings(mgr.GetClient(), clock.RealClock{}),
		Verify: verify, Key: m.key, OperatorNamespace: m.Agent.Namespace,
	}}, nil))
}
