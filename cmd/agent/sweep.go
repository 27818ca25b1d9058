package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"

	"github.com/sonde-operator/sonde/agents/capture/tc"
	"github.com/sonde-operator/sonde/agents/node/process"
)

// errNotHost is returned for a Pod that is not on the host network, but still in the node's namespace: it may be
// starting.
var errNotHost = errors.New("the Pod's network namespace is still the node's: try again when the Pod has started")

// runSweep removes the remains of a killed probe from the kernel. If the Pod is gone, its namespace and the remains are
// gone, too.
func runSweep(_ context.Context, args []string, log *slog.Logger) (int, error) {
	flags := flag.NewFlagSet("agent sweep", flag.ContinueOnError)
	uid := flags.String("pod-uid", "", "`UID` of the target Pod, as its cgroup has it")
	host := flags.Bool("host-network", false, "sweep the node's own network namespace")
	if err := parse(flags, args, "pod-uid"); err != nil {
		return exitUsage, err
	}
	ns, err := namespaceOf(process.Finder{}, *uid, *host)
	if errors.Is(err, process.ErrNoProcess) {
		log.Info("Nothing to sweep: the Pod is gone", "pod", *uid)
		return 0, nil
	}
	if err != nil {
		return 1, err
	}
	defer ns.Close()
	removed, err := tc.Sweep(ns.File)
	log.Info("Swept", "pod", *uid, "filters", removed)
	return 0, err
}

// namespaceOf returns the network namespace of a Pod, or the node's.
func namespaceOf(f process.Finder, uid string, host bool) (*process.NetNS, error) {
	own, err := f.OpenHostNetNS()
	if err != nil || host {
		return own, err
	}
	defer own.Close()
	ns, err := f.OpenNetNS(uid, false)
	if err != nil {
		return nil, err
	}
	if ns.Inode == own.Inode {
		return nil, errors.Join(errNotHost, ns.Close())
	}
	return ns, nil
}
