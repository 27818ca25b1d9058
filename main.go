// Command manager is Sonde's operator: controllers, webhooks and the results endpoint.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/sonde-operator/sonde/controllers/capture"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/filterpool"
	"github.com/sonde-operator/sonde/internal/operator/results"
	"github.com/sonde-operator/sonde/internal/operator/wiring"
	"github.com/sonde-operator/sonde/internal/settings"
)

// After the signal to end, the manager serves for drainQuiet, until the cluster sends it no more requests. Then it lets
// downloads finish. drainMost after the signal it ends the others, and another replica continues them.
const (
	drainQuiet = 3 * time.Second
	drainMost  = 15 * time.Second
)

// collectAt is the growth of the heap in percent that starts a garbage collection if $GOGC is not set. Most of the heap
// is caches that live on, and memory is the cost of an idle manager.
const collectAt = 25

// settable are the flags that an admin may also set by the environment.
var settable = []string{
	"ring-bytes", "disk-floor", "probe-privilege", "metrics-bind-address", "access-review-interval",
	"max-duration", "max-bytes", "max-pods-per-capture", "max-probes-per-node", "max-tracers-per-node", "max-results-per-node", "max-namespace-bytes-per-node",
	"max-captures-per-namespace", "max-unfinished-captures-per-namespace", "max-existing-captures-per-namespace",
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == filterpool.Subcommand {
		os.Exit(filterpool.Child(os.Args[2:]))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	options, log, err := parseFlags()
	ctrl.SetLogger(wiring.Logger(log))
	if err != nil {
		ctrl.Log.Error(err, "Reading the settings")
		os.Exit(1)
	}
	downloads := results.NewDrain(drainQuiet, drainMost, clock.RealClock{})
	if err := wiring.Run(downloads.Context(ctrl.SetupSignalHandler()), options, downloads); err != nil {
		ctrl.Log.Error(err, "Running the manager")
		os.Exit(1)
	}
}

func parseFlags() (wiring.Options, zap.Options, error) {
	o := wiring.Options{Agent: agentjob.Options{DiskFloor: agentjob.DefaultDiskFloor}}
	log := zap.Options{}
	flag.StringVar(&o.Agent.Image, "image", "", "image of the agents: the manager's own (required)")
	flag.StringVar(&o.ReleaserImage, "releaser-image", "", "image of the releaser, which runs Helm for Collectors (required)")
	flag.StringVar(&o.Agent.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "the operator's namespace; by default $POD_NAMESPACE")
	flag.Int64Var(&o.Agent.RingBytes, "ring-bytes", 32<<20, "memory of a probe's packet ring, in bytes")
	flag.Var(&o.Agent.DiskFloor, agentjob.DiskFloorFlag, "free space that probes leave on their node's disk: a part of it, like 17%, or a quantity, like 10Gi; 0 is none")
	flag.Var(&o.Agent.Privilege, "probe-privilege", "rights that probes run with: Privileged, or Capabilities for only those that they need")
	flag.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8443", "address of the metrics endpoint, which is https and needs a token that may get /metrics; 0 turns it off")
	flag.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	flag.IntVar(&o.WebhookPort, "webhook-port", 9443, "port of the webhooks")
	flag.IntVar(&o.ResultsPort, "results-port", 9444, "port of the results endpoint")
	flag.BoolVar(&o.LeaderElect, "leader-elect", false, "let one of several replicas run the controllers")
	flag.DurationVar(&o.AccessReviewInterval, "access-review-interval", capture.DefaultAccessReviewInterval, "how often the requester's right to a running capture is reviewed")
	o.Ceilings.BindFlags(flag.CommandLine)
	log.BindFlags(flag.CommandLine)
	err := settings.FromEnvironment(flag.CommandLine, os.LookupEnv, settable...)
	flag.Parse()
	if err != nil {
		return o, log, err
	}
	return o, log, check(o)
}

// check returns an error that names the first flag whose value cannot work.
func check(o wiring.Options) error {
	switch {
	case o.Agent.Image == "":
		return errors.New("--image is not set: name the manager's own image, which the agents run from")
	case o.Agent.Namespace == "":
		return errors.New("--namespace and $POD_NAMESPACE are not set: name the operator's namespace")
	case o.Agent.RingBytes < 1<<20:
		return fmt.Errorf("--ring-bytes=%d is too small: set at least 1048576", o.Agent.RingBytes)
	case o.AccessReviewInterval < time.Second:
		return fmt.Errorf("--access-review-interval=%s is too short: set at least 1s", o.AccessReviewInterval)
	}
	return o.Ceilings.Valid()
}
