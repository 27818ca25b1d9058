package stowaway

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestRoutesThatDoNotChange checks that a carrier's session outlives the time in which it must read a Table. It does not use
// testing/synctest: net/http2 keeps channels in a pool, which other tests of this process would get.
func TestRoutesThatDoNotChange(t *testing.T) {
	s := newServer(&Config{Log: slog.New(slog.DiscardHandler)})
	s.tableTimeout = 100 * time.Millisecond
	s.carriers["p"] = newCarrier(tunnel.Carrier{Pod: "p"})
	near, far := net.Pipe()
	go tunnel.Serve(t.Context(), far, s.carrierHandler(s.carriers["p"], &connection{}), tunnel.Near)
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

// TestOnlyCarriersOfARouteAreWoken checks which carriers make their Tables anew. The others would hold the lock for nothing.
func TestOnlyCarriersOfARouteAreWoken(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	path := "/a"
	a := tunnel.Route{ID: "a", Name: "shop/a", Created: at, ClientKey: "alice", Port: 80, Pods: []string{"p1", "p2"}, Match: &httpmatch.Match{Path: &httpmatch.Text{Exact: &path}}}
	b := tunnel.Route{ID: "b", Name: "shop/b", Created: at.Add(1), ClientKey: "bob", Port: 80, Pods: []string{"p2", "p3"}}
	state := func(generation string, routes ...tunnel.Route) *index {
		var carriers []tunnel.Carrier
		for _, pod := range []string{"p1", "p2", "p3", "p4"} {
			carriers = append(carriers, tunnel.Carrier{Pod: pod, Name: "shop/" + pod, Key: tunnel.PublicKey("of " + pod)})
		}
		i, err := newIndex(&tunnel.State{Version: tunnel.Version, Generation: generation, Carriers: carriers, Routes: routes}, "manager")
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	s := newServer(&Config{Log: slog.New(slog.DiscardHandler)})
	s.apply(state("first", a, b))
	peer := func() *tunnel.Peer {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		go func() { _, _ = io.Copy(io.Discard, far) }()
		p, err := tunnel.NewPeer(near, tunnel.Far)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	alice := func() *session {
		return &session{key: "alice", peer: peer(), lastRead: &atomic.Int64{}, streams: map[*stream]struct{}{}}
	}
	first, second := alice(), alice()
	moved := a
	moved.ClientKey = "another"
	port := b
	port.Port = 81
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"a client connects", func() { s.addSession(first) }, []string{"p1", "p2"}},
		{"it connects again", func() { s.addSession(second) }, nil},
		{"its first session ends", func() { s.removeSession(first) }, nil},
		{"an equal State", func() { s.apply(state("equal", a, b)) }, nil},
		{"a Pod more", func() { more := b; more.Pods = []string{"p2", "p3", "p4"}; s.apply(state("more", a, more)) }, []string{"p4"}},
		{"and less", func() { s.apply(state("less", a, b)) }, []string{"p4"}},
		{"another port", func() { s.apply(state("port", a, port)) }, []string{"p2", "p3"}},
		{"another match", func() { match := a; match.Match = nil; s.apply(state("match", match, port)) }, []string{"p1", "p2"}},
		{"it disconnects", func() { s.removeSession(second) }, []string{"p1", "p2"}},
		{"it returns", func() { s.addSession(alice()) }, []string{"p1", "p2"}},
		{"another key", func() { m := moved; m.Match = nil; s.apply(state("key", m, port)) }, []string{"p1", "p2"}},
		{"a route less", func() { s.apply(state("gone", port)) }, []string{"p1", "p2"}},
		{"none", func() { s.apply(&index{generation: "none"}) }, nil}, // their connections are closed
	} {
		before := map[string]chan struct{}{}
		for pod, c := range s.carriers {
			before[pod] = c.changed
		}
		step.do()
		var woken []string
		for pod, changed := range before {
			select {
			case <-changed:
				woken = append(woken, pod)
			default:
			}
		}
		slices.Sort(woken)
		if !slices.Equal(woken, step.want) {
			t.Errorf("%s: wakes %v, want %v", step.what, woken, step.want)
		}
	}
}
