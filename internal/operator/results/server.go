package results

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sonde-operator/sonde/internal/operator/connections"
)

// Bounds of the server. An answer has no time limit, because a stream may last for a day. Each write has a deadline.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 90 * time.Second
	maxHeaderBytes = 32 << 10
	// shutdownTimeout is short: Config.Drain has let downloads finish, and clients resume at another replica.
	shutdownTimeout = 3 * time.Second
)

// Server serves a handler over https on every replica. It writes nothing, so it needs no leader.
type Server struct {
	// Address to listen on, such as ":9444".
	Address string
	// GetCertificate returns the current certificate (certs.Manager.GetCertificate).
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Handler        http.Handler

	// MaxConnections are open at once. Above it the host with the most loses one that has no place.
	MaxConnections int

	address atomic.Pointer[net.TCPAddr] // nil until it listens
}

// Ready is a readiness check that fails until the server listens. It opens no connection: otherwise a client that holds
// MaxConnections would make the manager unready, and its webhooks with it. A server that fails ends the manager.
func (s *Server) Ready(*http.Request) error {
	if s.address.Load() == nil {
		return errors.New("the results endpoint does not listen yet")
	}
	return nil
}

// NeedLeaderElection tells controller-runtime to run it on every replica.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("results")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listen for results on %s: %w: if the port is in use, choose another with --results-port", s.Address, err)
	}
	server := &http.Server{
		Handler:           s.Handler,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.GetCertificate, NextProtos: []string{"http/1.1"}},
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// HTTP/1.1 only: the client recognizes a broken download by the closed connection.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     stdlog.New(logWriter{log.V(1)}, "", 0),
		ConnContext:  connections.Context,
		BaseContext:  func(net.Listener) context.Context { return ctrl.LoggerInto(ctx, log) },
	}
	if at, ok := listener.Addr().(*net.TCPAddr); ok {
		s.address.Store(at)
	}
	listener = connections.Listen(listener, s.MaxConnections)
	log.Info("Serving results", "address", listener.Addr().String())
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve results: %w", err)
	case <-ctx.Done():
	}
	// ctx has ended, and with it every stream.
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return server.Close()
	}
	return nil
}

// logWriter writes the messages of net/http, mostly failed handshakes, to the manager's log.
type logWriter struct{ log logr.Logger }

// Write implements io.Writer.
func (l logWriter) Write(p []byte) (int, error) {
	l.log.Info("Logging a message of the server", "text", strings.TrimSpace(string(p)))
	return len(p), nil
}
