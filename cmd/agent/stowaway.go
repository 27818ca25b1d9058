package main

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"os"

	"github.com/sonde-operator/sonde/agents/stowaway"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// runStowaway serves the cluster's end of the tunnel to developers' machines, until SIGTERM. The kubelet asks tunnel.PathHealth
// on the port of clients.
func runStowaway(ctx context.Context, args []string, log *slog.Logger) (int, error) {
	flags := flag.NewFlagSet("agent stowaway", flag.ContinueOnError)
	cfg := stowaway.Config{Confined: stowaway.CheckConfinement, Restrict: stowaway.Restrict, Log: log}
	identity := flags.String("identity", "", "`file` with the certificate and the key (PEM)")
	flags.Func("manager-key", "`key` of the manager: the SHA-256 of its public key, in base64", func(s string) error {
		if b, err := base64.StdEncoding.DecodeString(s); err != nil || len(b) != 32 {
			return errors.New("write the 44 characters of a SHA-256 in base64")
		}
		cfg.ManagerKey = tunnel.PublicKey(s)
		return nil
	})
	key := flags.String("identity-key", "", "the public `key` that the manager expects")
	clients := flags.String("listen-clients", fmt.Sprintf(":%d", tunnel.ClientPort), "`address` for developers' machines")
	peers := flags.String("listen-peers", fmt.Sprintf(":%d", tunnel.PeerPort), "`address` for the manager and the carriers")
	if err := parse(flags, args, "identity", "identity-key", "manager-key"); err != nil {
		return exitUsage, err
	}
	muteHTTP2()
	text, err := os.ReadFile(*identity)
	if err != nil {
		return 1, fmt.Errorf("read the identity: %w", err)
	}
	if cfg.Identity, err = tunnel.ParseIdentity(text); err != nil {
		return 1, err
	}
	// The kubelet mounts the Secret again when it restarts this container.
	if string(cfg.Identity.Key) != *key {
		return 1, fmt.Errorf("the Secret has key %s, but the Deployment expects %s: the Secret is older or newer than this Pod, and is read again", cfg.Identity.Key, *key)
	}
	cfg.ListenClients = func(ctx context.Context) (net.Listener, error) {
		return stowaway.Listen(ctx, *clients)
	}
	cfg.ListenPeers = func(ctx context.Context) (net.Listener, error) {
		return stowaway.Listen(ctx, *peers)
	}
	return 0, stowaway.Run(ctx, &cfg)
}

// muteHTTP2 drops the standard logger's lines. The client of HTTP/2 writes one for each stream on which the other side breaks the protocol.
// That is a developer's machine, or a Stowaway that was taken over, and either could fill the disk.
func muteHTTP2() { stdlog.SetOutput(io.Discard) }
