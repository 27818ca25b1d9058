package stowaway

import (
	"bufio"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestRoutesThatDoNotChange checks that a carrier's session outlives the time in which it must read a Table. It does not use
// testing/synctest: net/http2 keeps channels in a pool, which other tests of this process would get.
func TestRoutesThatDoNotChange(t *testing.T) {
	s := newServer(&Config{Log: slog.New(slog.DiscardHandler)})
	s.tableTimeout = 100 * time.Millisecond
	near, far := net.Pipe()
	go tunnel.Serve(t.Context(), far, s.carrierHandler(&carrier{pod: "p"}), tunnel.Near)
	p, err := tunnel.NewPeer(near, tunnel.Near)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r, err := tunnel.NewRequest(t.Context(), http.MethodGet, tunnel.PathRoutes, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := p.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	tables := bufio.NewScanner(response.Body)
	if !tables.Scan() {
		t.Fatalf("no Table: %v", tables.Err())
	}
	time.Sleep(5 * s.tableTimeout) // nothing may happen
	s.apply(&index{generation: "next", byPod: map[string][]*route{"p": {{Route: tunnel.Route{ID: "a"}}}}})
	if !tables.Scan() {
		t.Errorf("no Table after a change: %v", tables.Err())
	}
}
