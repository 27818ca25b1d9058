package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/sonde-operator/sonde/agents/capture"
	"github.com/sonde-operator/sonde/agents/probe"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// terminationLog is the kubelet's default file for a container's termination message.
const terminationLog = "/dev/termination-log"

// runProbe captures the packets of one Pod, or traces its system calls. Its exit codes are in package probe.
func runProbe(ctx context.Context, args []string, log *slog.Logger) (int, error) {
	flags := flag.NewFlagSet("agent probe", flag.ContinueOnError)
	var o probe.Options
	flags.StringVar(&o.CaptureUID, "capture-uid", "", "`UID` of the capture; a configuration of another one is refused")
	flags.StringVar(&o.PodUID, "pod-uid", "", "`UID` of the target Pod, as its cgroup has it")
	flags.StringVar(&o.PodName, "pod-name", "", "`name` of the target Pod")
	flags.StringVar(&o.Node, "node", "", "`name` of the node that it runs on")
	durationVar(flags, &o.Duration, "duration", "`time` to capture once attached: 30, 90s, 5m")
	flags.BoolVar(&o.HostNetwork, "host-network", false, "allow a Pod whose network namespace is the node's")
	flags.BoolVar(&o.Gate, "gate", false, "open the Pod's gate once attached")
	// The probe ignores it. The manager reads it from the Job: reading the results then needs the right on nodes.
	flags.Bool("host-pid", false, "say that the Pod sees its node's processes")
	flags.StringVar(&o.ConfigFile, "config", filepath.Join(captureconfig.ConfigDir, captureconfig.Key), "`file` that says what to capture")
	flags.StringVar(&o.ResultsDir, "results", captureconfig.ResultsDir, "`directory` to write to")
	flags.StringVar(&o.ControlDir, "control", captureconfig.ControlDir, "`directory` in which a stop file may appear")
	flags.StringVar(&o.TerminationLog, "termination-log", terminationLog, "`file` for the account, which must exist")
	if err := parse(flags, args, "capture-uid", "pod-uid", "pod-name", "node", "duration"); err != nil {
		return exitUsage, err
	}
	return probe.New(&o, capture.New, log).Run(ctx), nil
}

// runReady is the kubelet's startup probe. It exits with 0 when the probe is or was attached: a started container captures. With
// --file it exits with 0 when the file exists, which an opener makes when it is attached.
func runReady(_ context.Context, args []string, _ *slog.Logger) (int, error) {
	flags := flag.NewFlagSet("agent ready", flag.ContinueOnError)
	results := flags.String("results", captureconfig.ResultsDir, "`directory` that the probe writes to")
	file := flags.String("file", "", "`file` that an opener makes")
	if err := parse(flags, args); err != nil {
		return exitUsage, err
	}
	if *file != "" {
		_, err := os.Lstat(*file)
		return 0, err
	}
	b, err := os.ReadFile(filepath.Join(*results, captureconfig.ProgressFile))
	if err != nil {
		return 1, err
	}
	a, err := account.Parse(b)
	if err != nil || a.Started.IsZero() {
		return 1, err
	}
	return 0, nil
}
