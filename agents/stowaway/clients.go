package stowaway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/sonde-operator/sonde/internal/wire/connlimit"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Bounds of the port of clients.
const (
	maxClientConnections = 4096
	headerTimeout        = 5 * time.Second
	upgradeTimeout       = 5 * time.Second
	idleTimeout          = 15 * time.Second
)

// serveClients serves developers' machines, and the kubelet's probes, until ctx ends.
func (s *server) serveClients(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+tunnel.PathClient, s.upgrade)
	mux.HandleFunc("GET "+tunnel.PathHealth, s.health)
	server := &http.Server{
		Handler: mux, ConnContext: connlimit.Context, BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: connlimit.HeaderBytes, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(connlimit.Listen(l, maxClientConnections).BoundStrangers(maxHandshakes)); ctx.Err() == nil {
		return fmt.Errorf("serve clients: %w", err)
	}
	return nil
}

// stuckAfter is how long relieve may wait for the lock, or hold it, before Stowaway counts as stuck. It takes the lock each
// memory.CheckInterval.
const stuckAfter = 10 * time.Second

// health answers the kubelet without the lock: anyone may ask, and each would wait for it.
func (s *server) health(w http.ResponseWriter, _ *http.Request) {
	if stuck := time.Since(time.Unix(0, s.locked.Load())); stuck > stuckAfter {
		http.Error(w, "Stowaway's state has been locked for "+stuck.Round(time.Second).String(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // an error means that the kubelet has gone
}

// upgrade makes a request into a session. Who sent it is known only after the handshake inside.
func (s *server) upgrade(w http.ResponseWriter, r *http.Request) {
	switch {
	case !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade") || r.Header.Get("Upgrade") != tunnel.Protocol:
		w.Header().Set("Upgrade", tunnel.Protocol)
		http.Error(w, "upgrade to "+tunnel.Protocol+" with kubectl sonde intercept", http.StatusUpgradeRequired)
		return
	case r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.ContentLength != 0:
		http.Error(w, "upgrade with a request of HTTP/1.1 without a body", http.StatusBadRequest)
		return
	}
	raw, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "this connection cannot be upgraded", http.StatusBadRequest)
		return
	}
	defer raw.Close()
	if err := switchProtocols(raw); err != nil {
		return
	}
	conn := tls.Server(&bufferedConn{raw, buffered.Reader}, s.identity.ServerTLS(s.knownClient))
	if err := tunnel.Handshake(r.Context(), conn); err != nil {
		s.log.Debug("Refusing a client", "error", err)
		return
	}
	defer connlimit.Serving(r.Context())()
	connlimit.Sending(r.Context())
	s.serveSession(r.Context(), conn)
}

func switchProtocols(conn net.Conn) error {
	err := conn.SetWriteDeadline(time.Now().Add(upgradeTimeout))
	if err == nil {
		_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+tunnel.Protocol+"\r\n\r\n")
	}
	return errors.Join(err, conn.SetDeadline(time.Time{}))
}

// bufferedConn reads first what came with the request.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(b []byte) (int, error) {
	if c.r != nil && c.r.Buffered() > 0 {
		return c.r.Read(b)
	}
	c.r = nil
	return c.Conn.Read(b)
}

func (s *server) knownClient(key tunnel.PublicKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.clients[key] != nil
}

// session is the connection of a route's client. The server's lock guards streams, ending and pending.
type session struct {
	id, name string
	key      tunnel.PublicKey
	peer     *tunnel.Peer
	end      context.CancelFunc // closes the connection
	lastRead *atomic.Int64      // in ns since 1970
	streams  map[*stream]struct{}
	// ending counts streams whose ends the client's connection may not have taken. left is signalled when there are more.
	ending  int
	left    chan struct{}
	pending []pending
}

// namespaceOf returns the namespace of a name in a State.
func namespaceOf(name string) string {
	namespace, _, _ := strings.Cut(name, "/")
	return namespace
}

// heartbeat is when the client last sent something.
func (s *session) heartbeat() time.Time { return time.Unix(0, s.lastRead.Load()) }

// cutPods ends the streams of Pods that the route has no longer. The caller holds the server's lock.
func (s *session) cutPods(pods map[string]bool) {
	for stream := range s.streams {
		if !pods[stream.pod] {
			stream.cancel()
		}
	}
}

// holds returns about the bytes that the session takes without its open streams. The caller holds the server's lock.
func (s *session) holds() int { return connectionHolds + s.ending*streamHolds }

// settle counts the streams of a session that have ended, until HTTP/2's client has sent their ends. Until then it holds what their carriers
// sent last. A client whose connection takes few bytes could otherwise open, and let end, any number of them.
func (s *server) settle(ctx context.Context, of *session) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-of.left:
		}
		s.mu.Lock()
		n := of.ending
		s.mu.Unlock()
		of.peer.Sent()
		s.mu.Lock()
		of.ending -= n
		s.mu.Unlock()
	}
}

// trackedConn records when the other side last sent something. The client answers a ping each second.
type trackedConn struct {
	*tls.Conn
	at *atomic.Int64
}

func (c trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.at.Store(time.Now().UnixNano())
	}
	return n, err
}

// serveSession serves a client until it goes, is lost (tunnel.PingInterval), or is replaced.
func (s *server) serveSession(ctx context.Context, conn *tls.Conn) {
	lastRead := &atomic.Int64{}
	lastRead.Store(time.Now().UnixNano())
	peer, err := tunnel.NewPeer(trackedConn{conn, lastRead}, tunnel.Far)
	if err != nil {
		s.log.Debug("Refusing a client", "error", err)
		return
	}
	defer peer.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	session := &session{
		key: tunnel.PeerKey(conn.ConnectionState()), peer: peer, end: cancel, lastRead: lastRead, streams: map[*stream]struct{}{}, left: make(chan struct{}, 1),
	}
	if !s.addSession(session) {
		return
	}
	defer s.removeSession(session)
	go s.forward(ctx, session)
	go s.settle(ctx, session)
	select {
	case <-peer.Gone():
	case <-ctx.Done():
	}
}

// addSession makes the session its route's. It returns false if the State has no such route any more.
func (s *server) addSession(n *session) bool {
	old, ok := s.replaceSession(n)
	if old != nil { // the client has connected again
		old.peer.Close()
	}
	return ok
}

// replaceSession returns the route's session before, which the caller closes: nothing that a client may delay happens under the lock.
func (s *server) replaceSession(n *session) (old *session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.index.clients[n.key]
	if r == nil {
		return nil, false
	}
	n.id, n.name = r.ID, r.Name
	old = s.sessions[n.id]
	s.sessions[n.id] = n
	s.log.Info("Connecting a client", "route", n.name, "again", old != nil)
	if old == nil {
		s.announce(r)
	}
	return old, true
}

func (s *server) removeSession(old *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index.routes[old.id] != nil {
		s.heartbeats[old.id] = old.heartbeat()
	}
	if s.sessions[old.id] == old {
		delete(s.sessions, old.id)
		s.announce(s.index.routes[old.id])
	}
	s.log.Info("Disconnecting a client", "route", old.name)
}
