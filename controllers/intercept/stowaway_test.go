package intercept

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// serveStowaway serves a handler as the Stowaway of the objects that it returns. The manager finds it at a fixed port.
func serveStowaway(t *testing.T, h http.Handler) *stowawayObjects {
	t.Helper()
	var ids [2]*tunnel.Identity
	for i := range ids {
		var err error
		if ids[i], err = tunnel.NewIdentity(); err != nil {
			t.Fatal(err)
		}
	}
	const address = "127.0.0.77" // no other test listens there
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, strconv.Itoa(tunnel.PeerPort)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				secure := tls.Server(conn, ids[0].ServerTLS(func(k tunnel.PublicKey) bool { return k == ids[1].Key }))
				if tunnel.Handshake(context.Background(), secure) == nil {
					tunnel.Serve(context.Background(), secure, h, tunnel.Near)
				}
			}()
		}
	}()
	return &stowawayObjects{address: address, key: ids[0].Key, managerKey: ids[1].Key, manager: ids[1]}
}

// TestHostileStowaway: a Stowaway that was taken over fills neither the manager's memory nor its log.
func TestHostileStowaway(t *testing.T) {
	answer := func(w http.ResponseWriter, begin, part, end string, size int) {
		_, _ = io.WriteString(w, begin)
		for range size / len(part) {
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
		_, _ = io.WriteString(w, end)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+tunnel.PathStatus, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, `{"carriers":{`, `"a":{"routes":{"":{}}},`, `"":{}}}`, tunnel.MaxStatus-64)
	})
	mux.HandleFunc("PUT "+tunnel.PathState, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		answer(w, "no\x1b[2J\n", "such State ", "", tunnel.MaxStatus)
	})
	o := serveStowaway(t, mux)
	s := &Stowaway{}
	t.Cleanup(s.Close)
	if status, err := s.Status(t.Context(), o); err == nil || !strings.Contains(err.Error(), "values") {
		t.Errorf("the status has %d carriers: %v", len(status.Carriers), err)
	}
	err := s.Push(t.Context(), o, tunnel.State{})
	if err == nil {
		t.Fatal("the State is taken")
	}
	if text := err.Error(); len(text) > 2*maxRefusal || strings.ContainsAny(text, "\x1b\n") || !strings.Contains(text, "Stowaway answers 400: no [2J such State") {
		t.Errorf("%d bytes: %.200q", len(text), text)
	}
}
