// Package connections serves https with a bound on connections, which one client cannot use up alone (connlimit).
package connections

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
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sonde-operator/sonde/internal/wire/connlimit"
)

// Bounds of each server. An answer has no time limit, because a stream may last for a day.
const (
	// headerTimeout is for the handshake, and for the header of a request, which clients send at once.
	headerTimeout = 5 * time.Second
	// idleTimeout is longer than the 90 s after which the API server closes an idle connection to a webhook: if both closed it at the
	// same time, a request could be lost.
	idleTimeout = 2 * time.Minute
	// slopBytes is how much longer a header may be in net/http than its MaxHeaderBytes.
	slopBytes = 4 << 10
	// shutdownTimeout is for requests whose context has ended.
	shutdownTimeout = 3 * time.Second
)

// Server serves a handler over https on every replica, with a bounded number of connections. It needs no leader.
type Server struct {
	// Name of what it serves, such as "results", for the log and for errors.
	Name string
	// Address to listen on, such as ":9444". Flag sets it, and an error names the flag.
	Address, Flag string
	// GetCertificate returns the current certificate (certs.Manager.GetCertificate).
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Handler        http.Handler
	// MaxConnections are open at once. Above it the host with the most loses one that serves no known user (connlimit.Serving).
	MaxConnections int
	// ReadTimeout of a request with its body; 0 is none.
	ReadTimeout time.Duration
	// Grace is how long requests may continue when the manager ends. If it is 0, their contexts end with the manager's.
	Grace time.Duration

	address atomic.Pointer[net.TCPAddr] // nil until it listens
}

// Ready is a readiness check that fails until the server listens. It opens no connection: otherwise a client that holds
// MaxConnections would make the manager unready. A server that fails ends the manager.
func (s *Server) Ready(*http.Request) error {
	if s.address.Load() == nil {
		return fmt.Errorf("the server of %s does not listen yet", s.Name)
	}
	return nil
}

// NeedLeaderElection tells controller-runtime to run it on every replica.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName(s.Name)
	var listen net.ListenConfig
	listen.SetMultipathTCP(false) // it does not tell what a client has taken (connlimit.AwaitTaken)
	listener, err := listen.Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listen for %s on %s: %w: if the port is in use, choose another with %s", s.Name, s.Address, err, s.Flag)
	}
	base, timeout := ctx, shutdownTimeout
	if s.Grace > 0 {
		base, timeout = context.WithoutCancel(ctx), s.Grace
	}
	server := bounded(s.Handler, log)
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.GetCertificate, NextProtos: []string{"http/1.1"}}
	server.ReadTimeout = s.ReadTimeout
	// HTTP/1.1 only: a client recognizes a broken download by the closed connection, and a connection with many streams
	// would count as one.
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	server.BaseContext = func(net.Listener) context.Context { return ctrl.LoggerInto(base, log) }
	if at, ok := listener.Addr().(*net.TCPAddr); ok {
		s.address.Store(at)
	}
	listener = connlimit.Listen(listener, s.MaxConnections)
	log.Info("Serving", "address", listener.Addr().String())
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", s.Name, err)
	case <-ctx.Done():
	}
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return server.Close()
	}
	return nil
}

// healthConnections is plenty: the kubelet opens one for each probe.
const healthConnections = 16

// Health returns a server of the health checks over http. It starts on every replica and, as a manager.Server, before the
// caches, which may take long to fill.
func Health(ctx context.Context, address string, handler http.Handler) (*manager.Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for health checks on %s: %w: if the port is in use, choose another with --health-probe-bind-address", address, err)
	}
	const name = "health"
	server := bounded(handler, ctrl.LoggerFrom(ctx).WithName(name))
	server.ReadTimeout, server.WriteTimeout = headerTimeout, 2*headerTimeout
	server.SetKeepAlivesEnabled(false)
	return &manager.Server{Name: name, Server: server, Listener: connlimit.Listen(listener, healthConnections), ShutdownTimeout: new(shutdownTimeout)}, nil
}

// bounded returns a server with the bounds that hold for each.
func bounded(handler http.Handler, log logr.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    connlimit.HeaderBytes - slopBytes,
		ErrorLog:          stdlog.New(logWriter{log.V(1)}, "", 0),
		ConnContext:       connlimit.Context,
	}
}

// logWriter writes the messages of net/http, mostly failed handshakes, to the manager's log.
type logWriter struct{ log logr.Logger }

// Write implements io.Writer.
func (l logWriter) Write(p []byte) (int, error) {
	l.log.Info("Logging a message of the server", "text", strings.TrimSpace(string(p)))
	return len(p), nil
}
