package wiring

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=sonde-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=sonde-system,resources=leases,resourceNames=sonde-manager,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=events,verbs=create
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create

// leaseName is the name of the leader's lease.
const leaseName = "sonde-manager"

// shutdownGrace is how long the controllers may take to stop. Downloads have ended by then (results.Drain). The Pod's
// grace period is longer than both together.
const shutdownGrace = 10 * time.Second

// A reconciliation is cancelled after passTimeout. If it has not returned after hangTimeout, the kubelet restarts the
// manager.
const (
	passTimeout = 5 * time.Minute
	hangTimeout = 2 * passTimeout
)

// contactLimit is the longest silence of the API server at which a replica is still ready.
const contactLimit = 70 * time.Second

// ownRightsTimeout is how long the manager waits at its start for its own RoleBinding, which may come after its Pod.
const ownRightsTimeout = 10 * time.Second

// noAddress turns an endpoint off.
const noAddress = "0"

// Options are the manager's settings.
type Options struct {
	Agent agentjob.Options
	// ReleaserImage runs Helm for Collectors.
	ReleaserImage string
	// MetricsAddress and HealthAddress are host:port; noAddress turns an endpoint off.
	MetricsAddress, HealthAddress string
	WebhookPort, ResultsPort      int
	LeaderElect                   bool
	AccessReviewInterval          time.Duration
	Ceilings                      ceiling.Limits
}

// managerOptions sets up leader election and the webhook server, which serves the operator's own certificate.
func (m *manager) managerOptions(scheme *runtime.Scheme, caches cache.Options) ctrl.Options {
	return ctrl.Options{
		Scheme: scheme, Cache: caches,
		Metrics:                       metricsserver.Options{BindAddress: noAddress}, // addMetrics serves them
		HealthProbeBindAddress:        noAddress,                                     // addChecks serves them
		LeaderElection:                m.LeaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       m.Agent.Namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(shutdownGrace),
		// A standby fills its caches, so that it can take over at once, and records Pods that depart. Its queues drop requests (fairqueue).
		Controller:    ctrlconfig.Controller{EnableWarmup: new(true), ReconciliationTimeout: passTimeout},
		WebhookServer: m.newWebhookServer(),
	}
}
