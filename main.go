// Command manager is Sonde's operator: controllers, webhooks and the results endpoint.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"time"

	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsfilters "sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/controllers/capture"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/operator/console"
	"github.com/sonde-operator/sonde/internal/operator/drain"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/metrics"
	"github.com/sonde-operator/sonde/internal/operator/monitoring"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/operator/priority"
	"github.com/sonde-operator/sonde/internal/operator/results"
	"github.com/sonde-operator/sonde/internal/operator/scc"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/operator/trim"
	"github.com/sonde-operator/sonde/internal/settings"
	"github.com/sonde-operator/sonde/internal/version"
	"github.com/sonde-operator/sonde/webhooks"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=sonde-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=sonde-system,resources=leases,resourceNames=sonde-manager,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=sonde-system,resources=events,verbs=create
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create

// reviewTTL is how long the results endpoint may take a review for new.
const reviewTTL = 5 * time.Second

// How the manager ends: it goes on for a moment, in which the cluster stops to send it requests, and lets
// downloads end. What is not over drainMost after the signal, the moment included, goes on at another replica.
// The Pod's grace period is longer than drainMost and shutdownGrace together.
const (
	drainQuiet    = 3 * time.Second
	drainMost     = 15 * time.Second
	shutdownGrace = 10 * time.Second
)

// A pass is told to end after passTimeout; one that does not end hangs, and with it the manager.
const (
	passTimeout = 5 * time.Minute
	hangTimeout = 2 * passTimeout
)

// contactLimit is how long the API server may have been silent to a replica that is ready.
const contactLimit = 70 * time.Second

// keeperTimeout of a call to a keeper, which answers at once or is lost.
const keeperTimeout = 5 * time.Second

// ownRightsPatience is how long the manager's own RoleBinding may come after its Pod.
const ownRightsPatience = 10 * time.Second

// flags of the manager.
type flags struct {
	agent                agentjob.Options
	metrics, health      string
	webhookPort          int
	resultsPort          int
	leaderElect          bool
	accessReviewInterval time.Duration
	ceilings             ceiling.Limits
}

// settable are the flags that an admin may also set by the environment.
var settable = []string{
	"ring-bytes", "disk-floor", "probe-privilege", "metrics-bind-address", "access-review-interval",
	"max-duration", "max-bytes", "max-pods-per-capture", "max-probes-per-node", "max-captures-per-namespace",
}

func parseFlags() (flags, zap.Options, error) {
	f := flags{agent: agentjob.Options{DiskFloor: agentjob.DefaultDiskFloor}}
	log := zap.Options{}
	flag.StringVar(&f.agent.Image, "image", "", "image of the agents: the manager's own (required)")
	flag.StringVar(&f.agent.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "the operator's namespace; by default $POD_NAMESPACE")
	flag.Int64Var(&f.agent.RingBytes, "ring-bytes", 32<<20, "memory of a probe's packet ring, in bytes")
	flag.Var(&f.agent.DiskFloor, agentjob.DiskFloorFlag, "free space that probes leave on their node's disk: a part of it, like 12%, or a quantity, like 10Gi; 0 is none")
	flag.Var(&f.agent.Privilege, "probe-privilege", "with which rights probes run: Privileged, or Capabilities for no more than they need")
	flag.StringVar(&f.metrics, "metrics-bind-address", ":8443", "address of the metrics endpoint, which is https and asks for a token that may get /metrics; 0 turns it off")
	flag.StringVar(&f.health, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	flag.IntVar(&f.webhookPort, "webhook-port", 9443, "port of the webhooks")
	flag.IntVar(&f.resultsPort, "results-port", 9444, "port of the results endpoint")
	flag.BoolVar(&f.leaderElect, "leader-elect", false, "let one of several replicas run the controllers")
	flag.DurationVar(&f.accessReviewInterval, "access-review-interval", capture.DefaultAccessReviewInterval, "how often the requester's right to a running capture is reviewed")
	f.ceilings.BindFlags(flag.CommandLine)
	log.BindFlags(flag.CommandLine)
	err := settings.FromEnvironment(flag.CommandLine, os.LookupEnv, settable...)
	flag.Parse()
	return f, log, err
}

func (f flags) check() error {
	switch {
	case f.agent.Image == "":
		return errors.New("--image is not set: name the manager's own image, from which the agents run")
	case f.agent.Namespace == "":
		return errors.New("--namespace is not set, nor is $POD_NAMESPACE: name the operator's namespace")
	case f.agent.RingBytes < 1<<20:
		return fmt.Errorf("--ring-bytes=%d: at least 1048576 are needed", f.agent.RingBytes)
	case f.accessReviewInterval < time.Second:
		return fmt.Errorf("--access-review-interval=%s: at least 1s", f.accessReviewInterval)
	}
	return f.ceilings.Valid()
}

// collectAt is by how many percent the heap may grow before it is collected, where $GOGC says nothing: most of it is
// caches that live on, and memory is what a manager costs while it does nothing.
const collectAt = 25

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	f, log, err := parseFlags()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&log)))
	if err != nil {
		ctrl.Log.Error(err, "Reading the settings")
		os.Exit(1)
	}
	downloads := drain.New(drainQuiet, drainMost, clock.RealClock{})
	if err := run(downloads.Context(ctrl.SetupSignalHandler()), f, downloads); err != nil {
		ctrl.Log.Error(err, "Running the manager")
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags, downloads *drain.Drain) error {
	if err := f.check(); err != nil {
		return err
	}
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
	contact := &health.Contact{Limit: contactLimit, Clock: clock.RealClock{}}
	config.Wrap(contact.Wrap)
	// live reads and writes without a cache: what it reads is secret, or must not be stale.
	live, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := access.AwaitOwnRights(ctx, live, f.agent.Namespace, ownRightsPatience); err != nil {
		return err
	}
	key, err := stamp.EnsureKey(ctx, live, f.agent.Namespace)
	if err != nil {
		return err
	}
	filters, err := pcapfilter.New(ctx)
	if err != nil {
		return err
	}
	watchdog := &health.Watchdog{Limit: hangTimeout, Clock: clock.RealClock{}}
	serving := certs.NewManager(live, f.agent.Namespace, clock.RealClock{})
	serving.Watchdog = watchdog

	secret, err := f.follow(ctx, serving, config, scheme)
	if err != nil {
		return err
	}

	cacheOptions, err := capture.CacheOptions(f.agent.Namespace)
	if err != nil {
		return err
	}
	maps.Copy(cacheOptions.ByObject, platformcontroller.CacheByObject())
	optional, err := platform.Present(live.RESTMapper(), f.objects()...)
	if err != nil {
		return err
	}
	maps.Copy(cacheOptions.ByObject, platform.CacheByObject(optional))
	mgr, err := ctrl.NewManager(config, f.options(scheme, cacheOptions, serving))
	if err != nil {
		return fmt.Errorf("make manager: %w", err)
	}
	w := wiring{flags: f, live: live, key: key, filters: filters, serving: serving, secret: secret, contact: contact, downloads: downloads, watchdog: watchdog, optional: optional}
	for _, add := range []func(context.Context, ctrl.Manager) error{w.serve, w.check, w.admit, w.adapt, w.reconcile} {
		if err := add(ctx, mgr); err != nil {
			return err
		}
	}
	ctrl.Log.Info("Starting", "version", version.Version, "namespace", f.agent.Namespace, "image", f.agent.Image)
	return mgr.Start(ctx)
}

// follow has the certificate's Secret watched. Where no lease is renewed, nothing but the checks of the Secret shows
// that the API server is there, and they go on.
func (f flags) follow(ctx context.Context, serving *certs.Manager, config *rest.Config, scheme *runtime.Scheme) (certs.Watch, error) {
	secret, err := certs.NewWatch(config, f.agent.Namespace, scheme)
	if err != nil || !f.leaderElect {
		return secret, err
	}
	return secret, serving.Follow(ctx, secret)
}

// objects are those of optional APIs that the operator makes for itself, where the cluster has the API.
func (f flags) objects() []*unstructured.Unstructured {
	objects := append(console.Build(version.Version), scc.Build(f.agent), priority.Build())
	if f.metrics != "0" {
		objects = append(objects, monitoring.Build(f.agent.Namespace)...)
	}
	return objects
}

// keeperRestarts asks the cluster once: one that is upgraded later is seen by the manager's next start.
func keeperRestarts(config *rest.Config) (bool, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false, fmt.Errorf("make client: %w", err)
	}
	v, err := d.ServerVersion()
	if err != nil {
		return false, fmt.Errorf("ask for the cluster's version: %w", err)
	}
	return platform.RestartsContainers(v.GitVersion)
}

// options of the manager's frame: servers with the operator's own certificate, and one leader.
func (f flags) options(scheme *runtime.Scheme, caches cache.Options, serving *certs.Manager) ctrl.Options {
	tlsOpts := []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = serving.GetCertificate }}
	return ctrl.Options{
		Scheme: scheme, Cache: caches,
		Metrics:                       metricsserver.Options{BindAddress: f.metrics, SecureServing: true, FilterProvider: metricsfilters.WithAuthenticationAndAuthorization, TLSOpts: tlsOpts},
		HealthProbeBindAddress:        f.health,
		LeaderElection:                f.leaderElect,
		LeaderElectionID:              "sonde-manager",
		LeaderElectionNamespace:       f.agent.Namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(shutdownGrace),
		// A standby fills its caches, so that it can take over at once.
		Controller: ctrlconfig.Controller{EnableWarmup: new(true), ReconciliationTimeout: passTimeout},
		WebhookServer: webhook.NewServer(webhook.Options{
			Port: f.webhookPort, TLSOpts: tlsOpts,
		}),
	}
}

// wiring holds what several parts of the manager share.
type wiring struct {
	flags
	live    client.Client
	key     []byte
	filters *pcapfilter.Compiler
	serving *certs.Manager
	secret  certs.Watch
	contact *health.Contact

	downloads *drain.Drain
	watchdog  *health.Watchdog
	// optional are the objects of APIs that this cluster has and others have not.
	optional []*unstructured.Unstructured
}

// serve adds the certificate, the metrics and the results endpoint.
func (w wiring) serve(_ context.Context, mgr ctrl.Manager) error {
	handler := results.New(results.Config{
		Cache: mgr.GetClient(), Live: w.live, Key: w.key, Namespace: w.agent.Namespace,
		Reviews:  access.NewCached(access.NewReviewer(w.live), clock.RealClock{}, reviewTTL),
		Recorder: mgr.GetEventRecorder("sonde-results"), Clock: clock.RealClock{}, Drain: w.downloads,
	})
	endpoint := &results.Server{Address: fmt.Sprintf(":%d", w.resultsPort), GetCertificate: w.serving.GetCertificate, Handler: handler}
	return errors.Join(
		metrics.Register(crmetrics.Registry),
		crmetrics.Registry.Register(capture.Metrics{Reader: mgr.GetClient(), Namespace: w.agent.Namespace}),
		mgr.Add(w.secret),
		mgr.Add(trim.Trimmer{Clock: clock.RealClock{}}),
		mgr.Add(w.serving),
		mgr.Add(endpoint),
		mgr.AddReadyzCheck("results", endpoint.Ready),
	)
}

// check adds the health checks. The kubelet restarts a manager that hangs or does not answer, and sends
// nobody to one that could not decide.
func (w wiring) check(ctx context.Context, mgr ctrl.Manager) error {
	cached := []client.Object{&sondev1.ResultAccess{}, &corev1.Pod{}, &batchv1.Job{}}
	for _, k := range kind.All {
		cached = append(cached, k.New())
	}
	synced, err := health.Synced(ctx, mgr.GetCache(), cached...)
	if err != nil {
		return err
	}
	return errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddHealthzCheck("hanging", w.watchdog.Check),
		mgr.AddReadyzCheck("certificate", w.serving.Ready),
		mgr.AddReadyzCheck("api", w.contact.Check),
		mgr.AddReadyzCheck("caches", synced),
		mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()),
	)
}

// admit adds the webhooks.
func (w wiring) admit(_ context.Context, mgr ctrl.Manager) error {
	reviews := access.NewReviewer(w.live)
	server := mgr.GetWebhookServer()
	secret := webhookpath.Secret(w.key)
	for _, of := range []struct {
		path   string
		kind   kind.Kind
		checks webhooks.Checks
	}{
		{webhookpath.PacketCapture, kind.PacketCapture, &webhooks.PacketCaptureChecks{Filters: w.filters}},
		{webhookpath.Trace, kind.Trace, webhooks.TraceChecks{OperatorNamespace: w.agent.Namespace}},
	} {
		webhooks.Register(server, of.path, secret, &admission.Webhook{Handler: &webhooks.CaptureHandler{
			Kind: of.kind, Checks: of.checks,
			Live: w.live, Reviews: reviews, Key: w.key, OperatorNamespace: w.agent.Namespace, Clock: clock.RealClock{}, Ceilings: w.ceilings,
		}})
	}
	webhooks.Register(server, webhookpath.ResultAccess, secret, &admission.Webhook{Handler: &webhooks.ResultAccessHandler{
		Live: w.live, Reviews: reviews, Key: w.key, Clock: clock.RealClock{},
	}})
	for _, of := range []struct {
		path     string
		required bool
	}{{webhookpath.Gate, false}, {webhookpath.GateRequired, true}} {
		webhooks.Register(server, of.path, secret, &admission.Webhook{Handler: &webhooks.GateHandler{
			Gates: &webhooks.TraceGates{
				Cache: mgr.GetClient(), Live: w.live, Key: w.key, Image: w.agent.Image, Ceilings: w.ceilings, Clock: clock.RealClock{},
			},
			OperatorNamespace: w.agent.Namespace, Required: of.required,
		}})
	}
	return w.configure(mgr, secret)
}

// configure adds what keeps the webhooks' configurations in place.
func (w wiring) configure(mgr ctrl.Manager, secret string) error {
	gates, err := platformcontroller.NewGateConfigurationCache(mgr.GetConfig(), mgr.GetScheme())
	if err != nil {
		return err
	}
	errs := []error{mgr.Add(gates)}
	for _, configuration := range []*platformcontroller.ConfigurationReconciler{
		platformcontroller.NewConfigurationReconciler(mgr.GetClient(), w.live, w.agent.Namespace, secret, w.serving.CABundle),
		platformcontroller.NewGateConfigurationReconciler(mgr.GetClient(), w.live, gates, w.agent.Namespace, secret, w.serving.CABundle),
	} {
		configuration.Watchdog = w.watchdog
		w.serving.OnChange(configuration.Wake)
		errs = append(errs, configuration.SetupWithManager(mgr))
	}
	return errors.Join(errs...)
}

// adapt adds what keeps the objects of optional APIs in place.
func (w wiring) adapt(_ context.Context, mgr ctrl.Manager) error {
	var errs []error
	for _, o := range w.optional {
		r := &platformcontroller.ObjectReconciler{Client: mgr.GetClient(), Live: w.live, Desired: o, Watchdog: w.watchdog}
		errs = append(errs, r.SetupWithManager(mgr))
	}
	return errors.Join(errs...)
}

// reconcile adds the capture.
func (w wiring) reconcile(ctx context.Context, mgr ctrl.Manager) error {
	sweeper := &capture.Sweeper{
		Client: mgr.GetClient(), Live: w.live, Clock: clock.RealClock{}, Interval: capture.DefaultSweepInterval, Namespace: w.agent.Namespace,
		Watchdog: w.watchdog,
	}
	var err error
	if w.agent.KeeperRestarts, err = keeperRestarts(mgr.GetConfig()); err != nil {
		return err
	}
	stop, err := pause.NewSwitch(mgr.GetConfig(), w.agent.Namespace, mgr.GetScheme())
	if err != nil {
		return err
	}
	expiry := &capture.ResultAccessReconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}, Watchdog: w.watchdog}
	errs := []error{mgr.Add(stop), mgr.Add(sweeper), target.IndexFields(ctx, mgr.GetFieldIndexer()), expiry.SetupWithManager(mgr)}
	for _, of := range []capture.Kind{capture.PacketCaptures(w.filters), capture.Traces()} {
		captures := &capture.CaptureReconciler{
			Kind:   of,
			Client: mgr.GetClient(), Live: w.live, Switch: stop, Options: w.agent,
			Stamps:   capture.StampKey(w.key),
			Access:   access.NewReviewer(w.live),
			Keepers:  capture.KeeperCalls{Reader: w.live, Namespace: w.agent.Namespace, Timeout: keeperTimeout},
			Recorder: mgr.GetEventRecorder("sonde"), Clock: clock.RealClock{},
			Sweeper: sweeper, Ceilings: w.ceilings, AccessReviewInterval: w.accessReviewInterval, Watchdog: w.watchdog,
		}
		errs = append(errs, captures.SetupWithManager(mgr))
	}
	return errors.Join(errs...)
}
