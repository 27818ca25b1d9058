package intercept

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// serveStowaway serves connections as the Stowaway of the objects that it returns. The manager finds it at a fixed port.
func serveStowaway(t *testing.T, serve func(net.Conn)) *stowawayObjects {
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
					serve(secure)
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
	o := serveStowaway(t, func(conn net.Conn) { tunnel.Serve(context.Background(), conn, mux, tunnel.Near) })
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

// TestLastWordsOfStowaway: the text with which HTTP/2 lets a server end a connection does not fill the manager's log.
func TestLastWordsOfStowaway(t *testing.T) {
	o := serveStowaway(t, func(conn net.Conn) {
		defer conn.Close()
		_, _ = io.ReadFull(conn, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(conn, conn)
		_ = f.WriteSettings()
		for {
			got, err := f.ReadFrame()
			if err != nil {
				return
			}
			if got.Header().Type == http2.FrameHeaders {
				_ = f.WriteGoAway(got.Header().StreamID, http2.ErrCodeNo, bytes.Repeat([]byte("\x1b[2J"), 10<<10))
				return
			}
		}
	})
	s := &Stowaway{}
	t.Cleanup(s.Close)
	_, err := s.Status(t.Context(), o)
	if err == nil {
		t.Fatal("there is a status")
	}
	if text := err.Error(); len(text) > 2*maxRefusal || strings.Contains(text, "\x1b") || !strings.Contains(text, "GOAWAY") {
		t.Errorf("%d bytes: %.200q", len(text), text)
	}
}
