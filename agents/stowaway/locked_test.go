package stowaway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/memory"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// stubborn is a connection whose Close waits until the test ends.
type stubborn struct {
	net.Conn
	closing, ended chan struct{}
}

func (s *stubborn) Close() error {
	s.closing <- struct{}{}
	<-s.ended
	return s.Conn.Close()
}

// TestNoCloseUnderTheLock: a client whose connection does not close delays no other tenant, whether it connects again or loses its route.
func TestNoCloseUnderTheLock(t *testing.T) {
	for name, replace := range map[string]func(*server){
		"connects again":   func(s *server) { s.addSession(&session{key: "alice", streams: map[*stream]struct{}{}}) },
		"has no route now": func(s *server) { s.apply(&index{generation: "next"}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(&Config{Log: slog.New(slog.DiscardHandler)})
			i, err := newIndex(&tunnel.State{
				Version: tunnel.Version, Generation: "first", Routes: []tunnel.Route{{ID: "a", Name: "shop/a", ClientKey: "alice", Port: 80}},
			}, "manager")
			if err != nil {
				t.Fatal(err)
			}
			s.apply(i)
			near, far := net.Pipe()
			go func() { _, _ = far.Read(make([]byte, 4<<10)) }()
			conn := &stubborn{Conn: near, closing: make(chan struct{}, 8), ended: make(chan struct{})}
			t.Cleanup(func() {
				close(conn.ended)
				_ = far.Close()
			})
			peer, err := tunnel.NewPeer(conn, tunnel.Far)
			if err != nil {
				t.Fatal(err)
			}
			if !s.addSession(&session{key: "alice", peer: peer, lastRead: &atomic.Int64{}, streams: map[*stream]struct{}{}}) {
				t.Fatal("no route")
			}
			go replace(s)
			<-conn.closing
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				s.knownPeer("another tenant's carrier")
			}()
			select {
			case <-answered:
			case <-time.After(5 * time.Second):
				t.Error("the lock is held while the connection closes")
			}
		})
	}
}

// TestHealth: the kubelet hears of a lock that is not released.
func TestHealth(t *testing.T) {
	s := newServer(&Config{Log: slog.New(slog.DiscardHandler)})
	health := func() int {
		answer := &recorder{header: http.Header{}, status: http.StatusOK}
		s.health(answer, nil)
		return answer.status
	}
	if got := health(); got != http.StatusOK {
		t.Errorf("at the beginning: %d", got)
	}
	s.mu.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.relieve(ctx) }()
	s.locked.Store(time.Now().Add(-2 * stuckAfter).UnixNano())
	time.Sleep(4 * memory.CheckInterval) // nothing may happen
	if got := health(); got != http.StatusServiceUnavailable {
		t.Errorf("locked: %d", got)
	}
	s.mu.Unlock()
	eventually(t, 5*time.Second, "healthy again", func() bool { return health() == http.StatusOK })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
