package stowaway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Config of a Stowaway. All fields are required.
type Config struct {
	// Identity is the key that clients, carriers and the manager expect.
	Identity *tunnel.Identity
	// ManagerKey may send State and read Status.
	ManagerKey tunnel.PublicKey
	// ListenClients and ListenPeers open the two ports.
	ListenClients, ListenPeers func(context.Context) (net.Listener, error)
	// Confined returns an error if this process has any rights, as CheckConfinement does.
	Confined func() error
	// Restrict gives up the rights that this process does not need once its ports are open. The function Restrict does.
	Restrict func() (restriction.InForce, error)
	Log      *slog.Logger
}

// Run serves until ctx ends. Then it closes all connections and returns nil. It returns errors of the configuration and of the
// ports.
func Run(ctx context.Context, cfg *Config) error {
	if err := cfg.Confined(); err != nil {
		return err
	}
	clients, err := cfg.ListenClients(ctx)
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	peers, err := cfg.ListenPeers(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("listen for peers: %w", err), clients.Close())
	}
	inForce, err := cfg.Restrict()
	if err != nil {
		return errors.Join(err, clients.Close(), peers.Close())
	}
	cfg.Log.Info("Confining Stowaway", "user", os.Getuid(), "restrictions", inForce)
	cfg.Log.Info("Serving the tunnel", "clients", clients.Addr().String(), "peers", peers.Addr().String())

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := newServer(cfg)
	var parts sync.WaitGroup
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return s.serveClients(ctx, clients) },
		func(ctx context.Context) error { return s.servePeers(ctx, peers) },
		s.relieve,
		s.watchManager,
	} {
		parts.Go(func() { cancel(part(ctx)) })
	}
	parts.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
