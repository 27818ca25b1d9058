package wiring

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sonde-operator/sonde/controllers/capture"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/eventlimit"
	"github.com/sonde-operator/sonde/internal/operator/fewreads"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// keeperTimeout of a call to a keeper, which answers at once or is lost.
const keeperTimeout = 5 * time.Second

// controllerReads is how many objects or pages of tenants all controllers read at once. A tenant can make all of their workers
// read at the same time. The size of an object has no bound here: the capture of a large Pod must end, too.
var controllerReads = fewreads.Limits{Places: 2, Unbounded: true}

// addCaptures adds the controllers of PacketCapture, Trace and ResultAccess, and their sweeper.
func (m *manager) addCaptures(ctx context.Context, mgr ctrl.Manager) error {
	live := m.tenants
	sweeper := &sweep.Sweeper{
		Client: mgr.GetClient(), Live: live, Clock: clock.RealClock{}, Interval: sweep.DefaultInterval, Namespace: m.Agent.Namespace,
		Parallelism: capture.DefaultParallelism, Watchdog: m.watchdog,
	}
	jobs := m.Agent
	var err error
	if jobs.KeeperRestarts, err = restartsContainers(mgr.GetConfig()); err != nil {
		return err
	}
	m.pauses, err = pause.NewCache(mgr.GetConfig(), m.Agent.Namespace, mgr.GetScheme())
	if err != nil {
		return err
	}
	accesses := &capture.ResultAccessReconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}, Watchdog: m.watchdog}
	m.users = &capture.KeeperUsers{}
	errs := []error{mgr.Add(m.pauses), mgr.Add(sweeper), target.IndexFields(ctx, mgr.GetFieldIndexer()), accesses.SetupWithManager(mgr)}
	recorder := eventlimit.NewRecorder(mgr.GetEventRecorder("sonde"), mgr.GetScheme(), clock.RealClock{})
	for _, k := range []capture.Kind{capture.PacketCaptures(m.filters), capture.Traces()} {
		r := &capture.Reconciler{
			Kind:   k,
			Client: mgr.GetClient(), Live: live, PauseConfig: m.pauses, GateConfig: m.podConfiguration, Options: jobs,
			Stamps: capture.StampKey(m.key), Key: m.key,
			Access:   access.NewReviewer(m.live),
			Keepers:  capture.KeeperCalls{Reader: m.live, Namespace: m.Agent.Namespace, Key: m.key, Timeout: keeperTimeout},
			Recorder: recorder, Clock: clock.RealClock{},
			Sweeper: sweeper, Users: m.users, Ceilings: m.Ceilings, AccessReviewInterval: m.AccessReviewInterval, Watchdog: m.watchdog, PodWatch: m.pods,
			Parallelism: capture.DefaultParallelism,
		}
		errs = append(errs, r.SetupWithManager(mgr))
	}
	return errors.Join(errs...)
}

// restartsContainers asks for the cluster's version once. The manager notices an upgrade of the cluster at its next
// start.
func restartsContainers(config *rest.Config) (bool, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false, fmt.Errorf("make client: %w", err)
	}
	v, err := d.ServerVersion()
	if err != nil {
		return false, fmt.Errorf("get the cluster's version: %w", err)
	}
	return platform.RestartsContainers(v.GitVersion)
}
