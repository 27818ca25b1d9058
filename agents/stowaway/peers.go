package stowaway

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/connlimit"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Bounds of the port of peers. Above one of them the host with the most connections loses its oldest that has shown no known key.
const (
	maxHandshakes      = 1024
	maxPeerConnections = 2*tunnel.MaxCarriers + maxOfManager + maxHandshakes // a carrier's old connection may be ending
)

// acceptPause is the time before the next try when no connection could be accepted, because files are short, for example.
const acceptPause = 100 * time.Millisecond

// servePeers serves the manager and the carriers until ctx ends.
func (s *server) servePeers(ctx context.Context, l net.Listener) error {
	limited := connlimit.Listen(l, maxPeerConnections).BoundStrangers(maxHandshakes)
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var serving sync.WaitGroup
	defer serving.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		conn, err := limited.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept peers: %w", err)
		case err != nil:
			s.log.Warn("Accepting a peer failed", "error", err)
			time.Sleep(acceptPause)
		default:
			serving.Go(func() { s.servePeer(ctx, conn) })
		}
	}
}

// servePeer serves one connection, if its other side has a key of the State or the manager's.
func (s *server) servePeer(ctx context.Context, raw net.Conn) {
	defer raw.Close()
	conn := tls.Server(tunnel.Batch(raw), s.identity.ServerTLS(s.knownPeer))
	if err := tunnel.Handshake(ctx, conn); err != nil {
		s.log.Debug("Refusing a peer", "address", raw.RemoteAddr().String(), "error", err)
		return
	}
	of := connlimit.Context(ctx, raw)
	defer connlimit.Serving(of)()
	connlimit.Sending(of)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	key, own := tunnel.PeerKey(conn.ConnectionState()), &connection{end: cancel}
	if key == s.manager {
		defer s.addManager(own)()
		tunnel.Serve(ctx, conn, s.managerHandler(), tunnel.Near)
		return
	}
	// The State may have changed during the handshake.
	if c := s.addCarrier(key, own); c != nil {
		defer s.removeCarrier(c, own)
		tunnel.ServeStrictly(ctx, conn, s.carrierHandler(c, own), tunnel.Near)
	}
}

func (s *server) knownPeer(key tunnel.PublicKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.index.carriers[key]
	return known || key == s.manager
}

func (s *server) addManager(own *connection) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.managers.add(own, maxOfManager)
	s.log.Info("Connecting the manager")
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.managers.remove(own)
		s.log.Info("Disconnecting the manager")
	}
}

// managerHandler answers the manager.
func (s *server) managerHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+tunnel.PathState, s.putState)
	mux.HandleFunc("GET "+tunnel.PathStatus, s.getStatus)
	return mux
}

func (s *server) putState(w http.ResponseWriter, r *http.Request) {
	var state tunnel.State
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxStateBytes)).Decode(&state); err != nil {
		status := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, "read the State: "+err.Error(), status)
		return
	}
	i, err := newIndex(&state, s.manager)
	if err != nil {
		http.Error(w, "the State is not valid: "+err.Error(), http.StatusBadRequest)
		return
	}
	s.apply(i)
	w.WriteHeader(http.StatusNoContent)
}

func (s *server) getStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.status()) // an error means that the manager has gone
}
