package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"

	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/agents/keeper"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// runKeeper serves the result of the probe in the same Pod. It exits with 0 when the result is no longer needed.
func runKeeper(ctx context.Context, args []string, log *slog.Logger) (int, error) {
	flags := flag.NewFlagSet("agent keeper", flag.ContinueOnError)
	cfg := keeper.Config{Clock: clock.RealClock{}, Confined: keeper.CheckConfinement, Restrict: keeper.Restrict, Log: log}
	durationVar(flags, &cfg.Retain, "retain", "`time` to keep the result after the capture's end: 3600, 90s, 1h")
	address := flags.String("listen", fmt.Sprintf(":%d", captureconfig.KeeperPort), "`address` to serve on")
	flags.StringVar(&cfg.TLSDir, "tls", captureconfig.TLSDir, "`directory` with the key material")
	flags.StringVar(&cfg.ResultsDir, "results", captureconfig.ResultsDir, "`directory` that the probe writes to")
	flags.StringVar(&cfg.ControlDir, "control", captureconfig.ControlDir, "`directory` to leave a stop file in")
	if err := parse(flags, args, "retain"); err != nil {
		return exitUsage, err
	}
	cfg.Listen = func(ctx context.Context) (net.Listener, error) {
		return (&net.ListenConfig{}).Listen(ctx, "tcp", *address)
	}
	return 0, keeper.Run(ctx, &cfg)
}
