package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/sonde-operator/sonde/agents/carrier"
	"github.com/sonde-operator/sonde/agents/keeper"
	"github.com/sonde-operator/sonde/internal/wire/handover"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// runCarrier relays the connections of a Pod that an intercept redirects. It exits with 0 after SIGTERM.
func runCarrier(ctx context.Context, args []string, log *slog.Logger) (int, error) {
	flags := flag.NewFlagSet("agent carrier", flag.ContinueOnError)
	cfg := carrier.Config{Connections: carrier.DefaultConnections, IdleAfter: carrier.DefaultIdle, Confined: keeper.CheckConfinement, Restrict: carrier.Restrict, Log: log}
	socket := flags.String("socket", "", "`path` of the opener's socket")
	flags.StringVar(&cfg.Stowaway, "stowaway", "", "`host:port` of Stowaway for carriers")
	flags.StringVar((*string)(&cfg.StowawayKey), "stowaway-key", "", "Stowaway's public `key`")
	identity := flags.String("identity", "", "`file` with the carrier's own key")
	key := flags.String("identity-key", "", "the public `key` that Stowaway expects")
	flags.StringVar(&cfg.PodUID, "pod-uid", "", "`UID` of the target's Pod")
	flags.StringVar(&cfg.Pod, "pod", "", "`namespace/name` of the target's Pod")
	if err := parse(flags, args, "socket", "stowaway", "stowaway-key", "identity", "identity-key", "pod-uid", "pod"); err != nil {
		return exitUsage, err
	}
	muteHTTP2()
	text, err := os.ReadFile(*identity)
	if err != nil {
		return 0, fmt.Errorf("read identity: %w", err)
	}
	if cfg.Identity, err = tunnel.ParseIdentity(text); err != nil {
		return 0, err
	}
	if string(cfg.Identity.Key) != *key {
		return 0, fmt.Errorf("the Secret has key %s, but the Job expects %s: the Secret was replaced, and the manager starts another carrier", cfg.Identity.Key, *key)
	}
	cfg.Connect = func(ctx context.Context) (carrier.Pod, error) { return handover.Connect(ctx, *socket) }
	return 0, carrier.Run(ctx, &cfg)
}
