package keeper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/connlimit"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

// Bounds of the server.
const (
	maxConnections = 256 // above, the host with the most loses its oldest that serves no request of the manager
	maxHeaderBytes = connlimit.HeaderBytes
	headerTimeout  = 5 * time.Second  // the TLS handshake included
	readTimeout    = 15 * time.Second // a whole request; there are no large ones
	idleTimeout    = time.Minute
	// shutdownTimeout is how long running answers may take when the keeper ends.
	shutdownTimeout = time.Second
)

// Config of a keeper. All fields are required.
type Config struct {
	// Listen opens the port to serve on.
	Listen func(context.Context) (net.Listener, error)
	// TLSDir holds server.crt, server.key and client.crt (captureconfig.Secret*).
	TLSDir string
	// ResultsDir is the volume that the probe writes, ControlDir the one that it reads.
	ResultsDir string
	ControlDir string
	// Retain is how long the result is kept after the capture's end.
	Retain time.Duration
	// Clock measures Retain.
	Clock clock.WithTicker
	// Confined returns an error if this process has any rights, as CheckConfinement does.
	Confined func() error
	// Restrict gives up what the keeper no longer needs when its port and its volumes are open, as Restrict does.
	Restrict func(results, control string) (restriction.InForce, error)
	Log      *slog.Logger
}

// Run serves until the result is released, has been kept for Retain, or ctx ends. Then it returns nil within two
// seconds. It returns errors of the configuration and of the port.
func Run(ctx context.Context, cfg *Config) error {
	if err := cfg.Confined(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &handler{release: cancel, log: cfg.Log}
	defer h.close()
	if err := h.open(cfg); err != nil {
		return err
	}
	listener, err := listen(ctx, cfg)
	if err != nil {
		return err
	}
	inForce, err := cfg.Restrict(cfg.ResultsDir, cfg.ControlDir)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	cfg.Log.Info("Confining the keeper", "user", os.Getuid(), "restrictions", inForce)
	var follower sync.WaitGroup
	follower.Go(func() {
		defer cancel()
		ticker := cfg.Clock.NewTicker(pollInterval)
		defer ticker.Stop()
		h.progress.follow(ctx, ticker.C(), cfg.Retain, func(err error) {
			cfg.Log.Warn("Reading the progress failed", "error", err)
		})
	})
	err = serve(ctx, listener, h.routes(), cfg)
	cancel()
	follower.Wait()
	return err
}

// open opens the volumes.
func (h *handler) open(cfg *Config) (err error) {
	if h.results, err = openResults(cfg.ResultsDir); err != nil {
		return err
	}
	if h.control, err = openControl(cfg.ControlDir); err != nil {
		return err
	}
	h.progress, err = newProgress(h.results, cfg.Clock)
	return err
}

func (h *handler) close() {
	if h.results != nil {
		_ = h.results.close() // opened for reading: an error loses nothing
	}
	if h.control != nil {
		_ = h.control.close()
	}
}

// listen opens the port to clients with the pinned certificate.
func listen(ctx context.Context, cfg *Config) (net.Listener, error) {
	var pem [3][]byte
	for i, name := range []string{captureconfig.SecretServerCert, captureconfig.SecretServerKey, captureconfig.SecretClientCert} {
		b, err := os.ReadFile(filepath.Join(cfg.TLSDir, name))
		if err != nil {
			return nil, fmt.Errorf("read key material: %w", err)
		}
		pem[i] = b
	}
	config, err := keeperapi.ServerTLS(pem[0], pem[1], pem[2])
	if err != nil {
		return nil, err
	}
	l, err := cfg.Listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return tls.NewListener(connlimit.Listen(l, maxConnections), config), nil
}

// serving keeps the connection of a request open while others open more: who sends one has shown the manager's certificate.
func serving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer connlimit.Serving(r.Context())()
		connlimit.Sending(r.Context())
		next.ServeHTTP(w, r)
	})
}

// serve answers until ctx ends, and then for shutdownTimeout at most.
func serve(ctx context.Context, l net.Listener, routes http.Handler, cfg *Config) error {
	server := &http.Server{
		Handler:           serving(routes),
		ConnContext:       connlimit.Context,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelInfo),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	cfg.Log.Info("Serving the result", "address", l.Addr().String(), "retain", cfg.Retain.String())
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("shut down: %w", err)
	}
	_ = server.Close() // breaks off answers that still run
	return nil
}
