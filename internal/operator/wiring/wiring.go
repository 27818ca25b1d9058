// Package wiring assembles the manager from its parts: servers, checks, webhooks and controllers. It is the only
// package of internal/ that knows controllers and webhooks.
package wiring

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/controllers/capture"
	"github.com/sonde-operator/sonde/controllers/fluentpvc"
	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/operator/connections"
	"github.com/sonde-operator/sonde/internal/operator/fewreads"
	"github.com/sonde-operator/sonde/internal/operator/filterpool"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/paging"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/operator/podwatch"
	"github.com/sonde-operator/sonde/internal/operator/results"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/version"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// manager holds the parts that several others use.
type manager struct {
	Options
	// live reads and writes without a cache. It reads objects that are secret or must not be stale.
	live      client.Client
	key       []byte // of the admission stamps
	filters   *filterpool.Pool
	serving   *certs.Manager
	secret    certs.Watch // the serving certificate's Secret
	contact   *health.Contact
	watchdog  *health.Watchdog
	downloads *results.Drain
	results   *connections.Server
	pods      *podwatch.Watch
	// intake and podIntake bound what all webhooks read together.
	intake, podIntake *admission.Intake
	pauses            pause.Cache
	// users of agents, whatever their kind.
	users            *capture.KeeperUsers
	podConfiguration platformcontroller.ConfigurationCache
	// tenants reads objects of tenants for all controllers.
	tenants client.Reader
	// kindReads reads objects of tenants for the webhooks of captures, ResultAccesses, intercepts and Collectors.
	kindReads client.Reader
	// podReads reads objects of tenants for all webhooks of Pods.
	podReads client.Reader
	// optional are objects of APIs that not every cluster has; this cluster has them.
	optional []*unstructured.Unstructured
}

// Run connects to the cluster and runs the manager until ctx ends. downloads lets running downloads finish first.
func Run(ctx context.Context, o Options, downloads *results.Drain) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sondev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("build scheme: %w", err)
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	m, err := prepare(ctx, o, config, scheme)
	if err != nil {
		return err
	}
	defer m.filters.Close()
	m.downloads = downloads
	caches, err := m.cacheOptions()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, m.managerOptions(scheme, caches))
	if err != nil {
		return fmt.Errorf("make manager: %w", err)
	}
	for _, add := range []func(context.Context, ctrl.Manager) error{
		m.addServers, m.addChecks, m.addWebhooks, m.addConfigurations, m.addPlatform, m.addCaptures, m.addFluentPVC, m.addIntercepts, m.addCollectors,
	} {
		if err := add(ctx, mgr); err != nil {
			return err
		}
	}
	ctrl.Log.Info("Starting", "version", version.Version, "namespace", o.Agent.Namespace, "image", o.Agent.Image)
	return mgr.Start(ctx)
}

// prepare waits for the manager's rights, and makes the parts that must exist before its caches, such as the key of the
// stamps.
func prepare(ctx context.Context, o Options, config *rest.Config, scheme *runtime.Scheme) (*manager, error) {
	m := &manager{
		Options:  o,
		contact:  &health.Contact{Limit: contactLimit, Clock: clock.RealClock{}},
		watchdog: &health.Watchdog{Limit: hangTimeout, Clock: clock.RealClock{}},
	}
	config.Wrap(m.contact.Wrap)
	config.Wrap(paging.Bound) // outside of contact: a page that is too large shows that the API server answers
	config.Wrap(fewreads.Cut) // outermost: the bound of pages holds for what the API server sends
	var err error
	if m.live, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	m.tenants = fewreads.New(m.live, o.Agent.Namespace, controllerReads)
	m.kindReads = fewreads.New(m.live, o.Agent.Namespace, webhookReads)
	if err := access.AwaitOwnRights(ctx, m.live, o.Agent.Namespace, ownRightsTimeout); err != nil {
		return nil, err
	}
	if m.key, err = stamp.EnsureKey(ctx, m.live, o.Agent.Namespace); err != nil {
		return nil, err
	}
	if m.filters, err = filterpool.New(clock.RealClock{}, ctrl.Log.WithName("filters")); err != nil {
		return nil, err
	}
	m.serving = certs.NewManager(m.live, o.Agent.Namespace, clock.RealClock{})
	m.serving.Watchdog = m.watchdog
	if m.secret, err = certs.NewWatch(config, o.Agent.Namespace, scheme); err != nil {
		return nil, err
	}
	// Without leader election no lease is renewed. Then only the certificate manager's own checks of the Secret show
	// that the API server answers, so they continue.
	if o.LeaderElect {
		if err := m.serving.Follow(ctx, m.secret); err != nil {
			return nil, err
		}
	}
	led, err := podwatch.LastLed(ctx, m.live, client.ObjectKey{Namespace: o.Agent.Namespace, Name: leaseName})
	if err != nil {
		return nil, err
	}
	m.pods = podwatch.New(clock.RealClock{}, led)
	m.optional, err = platform.Present(m.live.RESTMapper(), o.optionalObjects()...)
	return m, err
}

// cacheOptions restricts the manager's cache to the objects that it reads.
func (m *manager) cacheOptions() (cache.Options, error) {
	options, err := capture.CacheOptions(m.Agent.Namespace)
	if err != nil {
		return options, err
	}
	options.NewInformer = paging.Informers(m.pods.NewInformer)
	maps.Copy(options.ByObject, fluentpvc.CacheByObject())
	maps.Copy(options.ByObject, platformcontroller.CacheByObject())
	return options, nil
}
