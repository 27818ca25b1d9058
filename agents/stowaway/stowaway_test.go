package stowaway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// world is a Stowaway on loopback with its manager.
type world struct {
	t              testing.TB
	identity       *tunnel.Identity
	managerID      *tunnel.Identity
	clients, peers string
	manager        *tunnel.Peer
	generation     int
}

func identity(tb testing.TB) *tunnel.Identity {
	tb.Helper()
	i, err := tunnel.NewIdentity()
	if err != nil {
		tb.Fatal(err)
	}
	return i
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{t: tb, identity: identity(tb), managerID: identity(tb)}
	listen := func(to *string) func(context.Context) (net.Listener, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		*to = l.Addr().String()
		return func(context.Context) (net.Listener, error) { return l, nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	cfg := &Config{
		Identity: w.identity, ManagerKey: w.managerID.Key, ListenClients: listen(&w.clients), ListenPeers: listen(&w.peers),
		Confined: func() error { return nil }, Restrict: func() (restriction.InForce, error) { return restriction.InForce{}, nil },
		Log: slog.New(slog.DiscardHandler),
	}
	go func() { ran <- Run(ctx, cfg) }()
	tb.Cleanup(func() {
		cancel()
		select {
		case err := <-ran:
			if err != nil {
				tb.Errorf("Run: %v", err)
			}
		case <-time.After(10 * time.Second):
			tb.Error("Run does not end")
		}
	})
	w.manager = w.mustPeer(w.managerID)
	return w
}

// peer connects to the port of peers.
func (w *world) peer(i *tunnel.Identity) (*tunnel.Peer, error) {
	conn, err := net.Dial("tcp", w.peers)
	if err != nil {
		w.t.Fatal(err)
	}
	secure := tls.Client(conn, i.ClientTLS(w.identity.Key))
	if err := tunnel.Handshake(w.t.Context(), secure); err != nil {
		return nil, err
	}
	p, err := tunnel.NewPeer(secure, tunnel.Near)
	if err == nil {
		w.t.Cleanup(p.Close)
	}
	return p, err
}

func (w *world) mustPeer(i *tunnel.Identity) *tunnel.Peer {
	w.t.Helper()
	p, err := w.peer(i)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// do sends a request, and returns its status and the begin of its body.
func do(tb testing.TB, p *tunnel.Peer, method, path string, body io.Reader) (int, string) {
	tb.Helper()
	r, err := tunnel.NewRequest(tb.Context(), method, path, body)
	if err != nil {
		tb.Fatal(err)
	}
	response, err := p.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	return response.StatusCode, string(b)
}

// set sends a State.
func (w *world) set(carriers []tunnel.Carrier, routes ...tunnel.Route) {
	w.t.Helper()
	w.generation++
	b, err := json.Marshal(tunnel.State{Version: tunnel.Version, Generation: fmt.Sprint(w.generation), Routes: routes, Carriers: carriers})
	if err != nil {
		w.t.Fatal(err)
	}
	if status, text := do(w.t, w.manager, http.MethodPut, tunnel.PathState, bytes.NewReader(b)); status != http.StatusNoContent {
		w.t.Fatalf("State: %d %s", status, text)
	}
}

func (w *world) status() *tunnel.Status {
	w.t.Helper()
	_, text := do(w.t, w.manager, http.MethodGet, tunnel.PathStatus, nil)
	var s tunnel.Status
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		w.t.Fatalf("Status %q: %v", text, err)
	}
	return &s
}

// eventually waits for a condition.
func eventually(tb testing.TB, within time.Duration, what string, holds func() bool) {
	tb.Helper()
	for end := time.Now().Add(within); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not within %s: %s", within, what)
		}
	}
}

// client is a developer's machine.
type client struct {
	conn    net.Conn
	served  chan struct{}
	mu      sync.Mutex
	reports []tunnel.Report
}

// upgrade returns the status of the upgrade, and the connection after it.
func (w *world) upgrade(request string) (*http.Response, net.Conn) {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.clients)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, conn
	}
	r := bufio.NewReaderSize(conn, 1)
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, conn
	}
	_ = conn.SetDeadline(time.Time{})
	return response, &bufferedConn{conn, r}
}

const goodUpgrade = "GET /v1/client HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: sonde-tunnel\r\n\r\n"

// session connects a client without serving it.
func (w *world) session(i *tunnel.Identity) (net.Conn, error) {
	w.t.Helper()
	response, conn := w.upgrade(goodUpgrade) //nolint:bodyclose // the body is the connection
	if response == nil || response.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatalf("upgrade answered %v", response)
	}
	secure := tls.Client(conn, i.ClientTLS(w.identity.Key))
	return secure, tunnel.Handshake(w.t.Context(), secure)
}

// connect connects a client that answers streams with its name and an echo.
func (w *world) connect(i *tunnel.Identity, name string) *client {
	w.t.Helper()
	conn, err := w.session(i)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &client{conn: conn, served: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+tunnel.PathOpen+"{id}", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get(tunnel.HeaderDestination) == "closed" {
			http.Error(rw, "nothing listens there", http.StatusBadGateway)
			return
		}
		s, err := tunnel.Accept(rw, r)
		if err != nil {
			return
		}
		_, _ = io.WriteString(s, name+" "+r.PathValue("id")+" "+r.Header.Get(tunnel.HeaderPod)+"\n")
		if _, err := io.Copy(s, s); err == nil {
			_ = s.CloseWrite()
		}
	})
	mux.HandleFunc("POST "+tunnel.PathReport, func(_ http.ResponseWriter, r *http.Request) {
		for d := json.NewDecoder(r.Body); ; {
			var report tunnel.Report
			if d.Decode(&report) != nil {
				return
			}
			c.mu.Lock()
			c.reports = append(c.reports, report)
			c.mu.Unlock()
		}
	})
	go func() {
		defer close(c.served)
		tunnel.Serve(context.Background(), conn, mux, tunnel.Far)
	}()
	w.t.Cleanup(func() {
		_ = conn.Close()
		<-c.served
	})
	return c
}

// tables reads the Tables of a carrier.
type tables struct {
	mu   sync.Mutex
	last *tunnel.Table
	done chan struct{}
}

func watch(tb testing.TB, p *tunnel.Peer) *tables {
	tb.Helper()
	r, err := tunnel.NewRequest(tb.Context(), http.MethodGet, tunnel.PathRoutes, nil)
	if err != nil {
		tb.Fatal(err)
	}
	response, err := p.Do(r) //nolint:bodyclose // it is read until the peer goes
	if err != nil || response.StatusCode != http.StatusOK {
		tb.Fatalf("routes: %v, %v", response, err)
	}
	w := &tables{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer response.Body.Close()
		for d := json.NewDecoder(response.Body); ; {
			var table tunnel.Table
			if d.Decode(&table) != nil {
				return
			}
			w.mu.Lock()
			w.last = &table
			w.mu.Unlock()
		}
	}()
	return w
}

// live returns the IDs of live routes, and of the others after a minus.
func (w *tables) live() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		return "none yet"
	}
	var ids []string
	for _, r := range w.last.Routes {
		if r.Live {
			ids = append(ids, r.ID)
		} else {
			ids = append(ids, "-"+r.ID)
		}
	}
	return strings.Join(ids, " ")
}

func (w *tables) await(tb testing.TB, within time.Duration, want string) {
	tb.Helper()
	eventually(tb, within, "routes "+want, func() bool { return w.live() == want })
}

// say opens a stream, sends text, and returns all that comes back.
func say(tb testing.TB, p *tunnel.Peer, route, text string) (string, error) {
	tb.Helper()
	s, err := p.Open(tb.Context(), tunnel.PathOpen+route, nil)
	if err != nil {
		return "", err
	}
	defer s.Close()
	wrote := make(chan error, 1)
	go func() { // what comes back meanwhile may be more than fits into windows
		_, err := io.WriteString(s, text)
		wrote <- errors.Join(err, s.CloseWrite())
	}()
	b, err := io.ReadAll(s)
	if err != nil {
		_ = s.Close()
	}
	return string(b), errors.Join(err, <-wrote)
}

// refusal returns the status of a stream that was refused.
func refusal(err error) int {
	if refused, ok := errors.AsType[*tunnel.Refused](err); ok {
		return refused.Status
	}
	return 0
}

// shop is a world of two routes on two Pods: route a on both, route b on the second one only.
type shop struct {
	*world
	alice, bob, one, two *tunnel.Identity
	carriers             []tunnel.Carrier
	a, b                 tunnel.Route
}

func newShop(tb testing.TB) *shop {
	tb.Helper()
	s := &shop{world: newWorld(tb), alice: identity(tb), bob: identity(tb), one: identity(tb), two: identity(tb)}
	s.carriers = []tunnel.Carrier{{Pod: "p1", Name: "shop/web-1", Key: s.one.Key}, {Pod: "p2", Name: "shop/web-2", Key: s.two.Key}}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s.a = tunnel.Route{ID: "a", Name: "shop/alice", Created: at, ClientKey: s.alice.Key, Port: 8080, Pods: []string{"p1", "p2"}}
	s.b = tunnel.Route{ID: "b", Name: "shop/bob", Created: at.Add(1), ClientKey: s.bob.Key, Port: 8080, Pods: []string{"p2"}}
	s.set(s.carriers, s.a, s.b)
	return s
}

func TestTwoRoutesAndTwoCarriers(t *testing.T) {
	w := newShop(t)
	one, two := w.mustPeer(w.one), w.mustPeer(w.two)
	t1, t2 := watch(t, one), watch(t, two)
	t1.await(t, 5*time.Second, "-a")
	t2.await(t, 5*time.Second, "-a -b")
	if _, err := say(t, one, "a", "x"); refusal(err) != http.StatusServiceUnavailable {
		t.Errorf("a stream without a client: %v", err)
	}
	w.connect(w.alice, "alice")
	w.connect(w.bob, "bob")
	t1.await(t, 5*time.Second, "a")
	t2.await(t, 5*time.Second, "a b")
	large := strings.Repeat("0123456789abcdef", 200_000)
	for _, tc := range []struct {
		carrier     *tunnel.Peer
		route, want string
	}{{one, "a", "alice a shop/web-1\n"}, {two, "a", "alice a shop/web-2\n"}, {two, "b", "bob b shop/web-2\n"}} {
		got, err := say(t, tc.carrier, tc.route, large)
		if err != nil || got != tc.want+large {
			t.Errorf("route %s: %d bytes, begin %.30q, %v; want %q and an echo", tc.route, len(got), got, err, tc.want)
		}
	}
	for _, id := range []string{"b", "c", "A", "a%2f"} {
		if _, err := say(t, one, id, "x"); refusal(err) != http.StatusNotFound {
			t.Errorf("a stream to route %q, which the Pod does not have: %v", id, err)
		}
	}
	_, err := one.Open(t.Context(), tunnel.PathOpen+"a", http.Header{tunnel.HeaderDestination: {"closed"}})
	if refused, ok := errors.AsType[*tunnel.Refused](err); !ok || refused.Status != http.StatusBadGateway || refused.Reason != "nothing listens there" {
		t.Errorf("refused by the client: %v", err)
	}
	s := w.status()
	if !s.Routes["a"].Connected || !s.Carriers["p1"].Connected || s.Generation != "1" || time.Since(s.Routes["a"].Heartbeat) > 3*time.Second {
		t.Errorf("status %+v", s)
	}
}

// TestHalfClose checks that each side can end its direction first.
func TestHalfClose(t *testing.T) {
	w := newShop(t)
	w.connect(w.alice, "alice")
	p := w.mustPeer(w.one)
	watch(t, p).await(t, 5*time.Second, "a")
	s, err := p.Open(t.Context(), tunnel.PathOpen+"a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(s).ReadString('\n'); err != nil { // before anything was sent
		t.Errorf("read %q, %v", line, err)
	}
	_, _ = io.WriteString(s, "more")
	_ = s.CloseWrite()
	if b, err := io.ReadAll(s); string(b) != "more" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
}

func TestUnknownKeys(t *testing.T) {
	w := newShop(t)
	stranger := identity(t)
	refused := func(what string, conn interface{ Read([]byte) (int, error) }, err error) {
		t.Helper()
		if err == nil { // TLS 1.3: the server checks the client's certificate after the client's handshake
			_, err = conn.Read(make([]byte, 1))
		}
		if err == nil {
			t.Errorf("%s is served", what)
		}
	}
	for what, i := range map[string]*tunnel.Identity{"a stranger": stranger, "a carrier": w.one, "the manager": w.managerID} {
		conn, err := w.session(i)
		refused(what+" as a client", conn, err)
	}
	for what, i := range map[string]*tunnel.Identity{"a stranger": stranger, "a client": w.alice} {
		if p, err := w.peer(i); err == nil {
			if status, _ := do(t, p, http.MethodGet, tunnel.PathRoutes, nil); status != 0 {
				t.Errorf("%s gets the routes: %d", what, status)
			}
		}
	}
}

func TestOnlyTheManagerSetsState(t *testing.T) {
	w := newShop(t)
	carrier := w.mustPeer(w.one)
	for _, path := range []string{tunnel.PathState, tunnel.PathStatus} {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			if status, _ := do(t, carrier, method, path, strings.NewReader("{}")); status != http.StatusNotFound {
				t.Errorf("a carrier's %s %s: %d", method, path, status)
			}
		}
	}
	for path, method := range map[string]string{tunnel.PathRoutes: http.MethodGet, tunnel.PathReport: http.MethodPost, tunnel.PathOpen + "a": http.MethodPost} {
		if status, _ := do(t, w.manager, method, path, strings.NewReader("")); status != http.StatusNotFound {
			t.Errorf("the manager's %s %s: %d", method, path, status)
		}
	}
}

func TestStatesThatAreRefused(t *testing.T) {
	w := newShop(t)
	route := `{"id":"r","clientKey":"k","port":1}`
	for name, tc := range map[string]struct {
		body string
		want int
	}{
		"not JSON":         {body: "{", want: http.StatusBadRequest},
		"other version":    {body: `{"version":99,"generation":"x"}`, want: http.StatusBadRequest},
		"no generation":    {body: `{"version":1}`, want: http.StatusBadRequest},
		"same route twice": {body: `{"version":1,"generation":"x","routes":[` + route + `,` + route + `]}`, want: http.StatusBadRequest},
		"ID is a path":     {body: `{"version":1,"generation":"x","routes":[{"id":"a/b","clientKey":"k","port":1}]}`, want: http.StatusBadRequest},
		"no client key":    {body: `{"version":1,"generation":"x","routes":[{"id":"a","port":1}]}`, want: http.StatusBadRequest},
		"same key twice":   {body: `{"version":1,"generation":"x","carriers":[{"pod":"a","key":"k"},{"pod":"b","key":"k"}]}`, want: http.StatusBadRequest},
		"manager's key":    {body: `{"version":1,"generation":"x","carriers":[{"pod":"a","key":"` + string(w.managerID.Key) + `"}]}`, want: http.StatusBadRequest},
		"too large":        {body: `{"version":1,"generation":"` + strings.Repeat("x", maxStateBytes) + `"}`, want: http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			if status, text := do(t, w.manager, http.MethodPut, tunnel.PathState, strings.NewReader(tc.body)); status != tc.want {
				t.Errorf("status %d %s, want %d", status, text, tc.want)
			}
		})
	}
	if g := w.status().Generation; g != "1" {
		t.Errorf("generation %s after refused States", g)
	}
}

// TestFrozenClient checks that carriers hear of a client that stops answering within 4 s, and of one that has gone at once.
func TestFrozenClient(t *testing.T) {
	w := newShop(t)
	table := watch(t, w.mustPeer(w.one))
	frozen, err := w.session(w.alice) // never answers
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, frozen) }()
	table.await(t, 5*time.Second, "a")
	table.await(t, 4*time.Second, "-a")
	if s := w.status().Routes["a"]; s.Connected || s.Heartbeat.IsZero() {
		t.Errorf("status %+v", s)
	}

	c := w.connect(w.alice, "alice")
	table.await(t, 5*time.Second, "a")
	_ = c.conn.Close()
	table.await(t, time.Second, "-a")
}

// TestReconnectedClient checks that a new session replaces the old one.
func TestReconnectedClient(t *testing.T) {
	w := newShop(t)
	p := w.mustPeer(w.one)
	table := watch(t, p)
	first := w.connect(w.alice, "first")
	table.await(t, 5*time.Second, "a")
	w.connect(w.alice, "second")
	select {
	case <-first.served:
	case <-time.After(5 * time.Second):
		t.Fatal("the first session stays")
	}
	if got, err := say(t, p, "a", ""); got != "second a shop/web-1\n" {
		t.Errorf("read %q, %v", got, err)
	}
	if got := table.live(); got != "a" {
		t.Errorf("routes %s", got)
	}
}

// TestReplacedState checks that everything ends that the next State does not have.
func TestReplacedState(t *testing.T) {
	w := newShop(t)
	one, two := w.mustPeer(w.one), w.mustPeer(w.two)
	t1, t2 := watch(t, one), watch(t, two)
	alice, bob := w.connect(w.alice, "alice"), w.connect(w.bob, "bob")
	t1.await(t, 5*time.Second, "a")
	t2.await(t, 5*time.Second, "a b")
	open := func(p *tunnel.Peer, route string) (ended <-chan error) {
		t.Helper()
		s, err := p.Open(t.Context(), tunnel.PathOpen+route, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, s)
			done <- err
		}()
		return done
	}
	cut := func(what string, ended <-chan error) {
		t.Helper()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s ended as if it was whole", what)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s stays", what)
		}
	}
	onOne, onTwo, ofBob := open(one, "a"), open(two, "a"), open(two, "b")

	w.generation-- // an equal generation changes nothing
	w.set(nil)
	if got := w.status(); len(got.Routes) != 2 {
		t.Errorf("status after an equal generation: %+v", got)
	}

	w.a.Pods = []string{"p2"}
	w.set(w.carriers, w.a)
	cut("the stream of a Pod that the route has no longer", onOne)
	cut("the stream of a route that is gone", ofBob)
	t1.await(t, 5*time.Second, "")
	t2.await(t, 5*time.Second, "a")
	select {
	case <-bob.served:
	case <-time.After(5 * time.Second):
		t.Error("the session of a route that is gone stays")
	}
	if conn, err := w.session(w.bob); err == nil {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the client of a route that is gone connects again")
		}
	}

	w.set(w.carriers[:1], w.a)
	cut("the stream of a carrier that is gone", onTwo)
	select {
	case <-two.Gone():
	case <-time.After(5 * time.Second):
		t.Error("a carrier that is gone stays connected")
	}
	select {
	case <-alice.served:
		t.Error("the session of a route that stays has ended")
	default:
	}
}

// TestSilentManager checks that routes end ten minutes after the manager's last request, and that its next State counts again.
func TestSilentManager(t *testing.T) {
	id := identity(t)
	i, err := newIndex(&tunnel.State{Version: tunnel.Version, Generation: "g", Routes: []tunnel.Route{{ID: "r", ClientKey: id.Key, Port: 1}}}, "manager")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(&Config{Log: slog.New(slog.DiscardHandler)})
	s.apply(i)
	s.lapse(time.Now().Add(managerPatience / 2))
	if got := s.status(); got.Generation != "g" || len(got.Routes) != 1 {
		t.Errorf("the routes have ended too early: %+v", got)
	}
	s.lapse(time.Now().Add(2 * managerPatience))
	if got := s.status(); got.Generation != lapsed || len(got.Routes) != 0 {
		t.Errorf("the routes have not ended: %+v", got)
	}
	s.apply(i)
	if got := s.status(); len(got.Routes) != 1 {
		t.Errorf("the manager's next State has no effect: %+v", got)
	}
}

// TestCopiedKey checks that a later route with another one's client key gets none of its sessions.
func TestCopiedKey(t *testing.T) {
	w := newShop(t)
	w.b.ClientKey = w.alice.Key
	w.set(w.carriers, w.b, w.a)
	table := watch(t, w.mustPeer(w.two))
	w.connect(w.alice, "alice")
	table.await(t, 5*time.Second, "a -b")
}

func TestReports(t *testing.T) {
	w := newShop(t)
	one, two := w.mustPeer(w.one), w.mustPeer(w.two)
	alice, bob := w.connect(w.alice, "alice"), w.connect(w.bob, "bob")
	watch(t, two).await(t, 5*time.Second, "a b")
	send := func(p *tunnel.Peer, reports ...tunnel.Report) (end func()) {
		body, in := io.Pipe()
		r, err := tunnel.NewRequest(t.Context(), http.MethodPost, tunnel.PathReport, body)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if response, err := p.Do(r); err == nil {
				_ = response.Body.Close()
			}
		}()
		for _, report := range reports {
			if err := json.NewEncoder(in).Encode(report); err != nil {
				t.Fatal(err)
			}
		}
		return func() { _ = in.Close() }
	}
	counters := tunnel.Counters{Connections: 3, Matched: 2, Passed: 1}
	defer send(one, tunnel.Report{
		Pod: "p2", Steered: []uint16{8080}, Routes: map[string]tunnel.Counters{"a": counters, "b": counters},
		Requests: []tunnel.Request{{Number: 7, Pod: "x", Route: "a", Method: "GET", Path: "/" + strings.Repeat("x", 5000)}, {Route: "b", Path: "/forged"}, {Path: "/unmatched"}},
	})()
	defer send(two, tunnel.Report{Routes: map[string]tunnel.Counters{"b": counters}, Requests: []tunnel.Request{{Route: "b", Path: "/bob"}}})()
	paths := func(c *client) string {
		c.mu.Lock()
		defer c.mu.Unlock()
		var all []string
		for _, r := range c.reports {
			for id, n := range r.Routes {
				all = append(all, fmt.Sprintf("%s %s %d", r.Pod, id, n.Matched))
			}
			for _, q := range r.Requests {
				all = append(all, fmt.Sprintf("%s %d %s%.3s %d", r.Pod, q.Number, q.Pod, q.Path, len(q.Path)))
			}
		}
		slices.Sort(all)
		return strings.Join(slices.Compact(all), "; ")
	}
	for name, tc := range map[string]struct {
		client *client
		want   string
	}{
		"alice": {alice, "p1 7 shop/web-1/xx 256; p1 a 2"},
		"bob":   {bob, "p2 0 shop/web-2/bo 4; p2 b 2"},
	} {
		eventually(t, 10*time.Second, name+" gets "+tc.want, func() bool { return paths(tc.client) == tc.want })
	}
	got := w.status().Carriers
	if len(got["p1"].Routes) != 1 || got["p1"].Routes["a"] != counters || !slices.Equal(got["p1"].Steered, []uint16{8080}) {
		t.Errorf("status %+v", got)
	}
	if status, _ := do(t, one, http.MethodPost, tunnel.PathReport, strings.NewReader("{}\n")); status != http.StatusConflict {
		t.Errorf("a second stream of reports: %d", status)
	}
	another := w.mustPeer(w.one)
	if status, _ := do(t, another, http.MethodPost, tunnel.PathReport, strings.NewReader(strings.Repeat("x", maxReport(1)+1))); status != http.StatusBadRequest {
		t.Errorf("a line without an end: %d", status)
	}
	if status, _ := do(t, another, http.MethodPost, tunnel.PathReport, strings.NewReader("[]\n")); status != http.StatusBadRequest {
		t.Errorf("a line that is no Report: %d", status)
	}
}

// TestOneConnectionOfACarrier checks that a carrier that connects again loses its connection before.
func TestOneConnectionOfACarrier(t *testing.T) {
	w := newShop(t)
	before, other := w.mustPeer(w.one), w.mustPeer(w.two)
	watch(t, before).await(t, 5*time.Second, "-a")
	watch(t, w.mustPeer(w.one)).await(t, 5*time.Second, "-a")
	select {
	case <-before.Gone():
	case <-time.After(5 * time.Second):
		t.Error("the connection before stays")
	}
	watch(t, other).await(t, 5*time.Second, "-a -b")
	if !w.status().Carriers["p1"].Connected {
		t.Error("the carrier is not connected")
	}
}

// TestRefusalsHoldNothing checks that refusals have no body, which a carrier could leave unread, and that their requests' bodies end.
func TestRefusalsHoldNothing(t *testing.T) {
	w := newShop(t)
	p := w.mustPeer(w.one)
	var refused *tunnel.Refused
	if _, err := p.Open(t.Context(), tunnel.PathOpen+"b", nil); !errors.As(err, &refused) || refused.Reason != "this Pod has no such route" {
		t.Errorf("another Pod's route: %v", err)
	}
	for name, tc := range map[string]struct {
		method, path string
		want         int
	}{
		"route of another Pod": {http.MethodPost, tunnel.PathOpen + "b", http.StatusNotFound},
		"method":               {http.MethodGet, tunnel.PathOpen + "a", http.StatusNotFound},
		"path":                 {http.MethodGet, "/v1/../x", http.StatusNotFound},
		"manager's":            {http.MethodPut, tunnel.PathState, http.StatusNotFound},
		"no Report":            {http.MethodPost, tunnel.PathReport, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			body, in := io.Pipe()
			defer in.Close()
			written := make(chan struct{})
			go func() {
				defer close(written)
				line := strings.Repeat("x", 1<<10) + "\n"
				for err := error(nil); err == nil; {
					_, err = io.WriteString(in, line)
				}
			}()
			if status, text := do(t, p, tc.method, tc.path, body); status != tc.want || text != "" {
				t.Errorf("status %d, text %q, want %d and no text", status, text, tc.want)
			}
			select {
			case <-written:
			case <-time.After(5 * time.Second):
				t.Error("the body does not end")
			}
		})
	}
}

func TestHostileUpgrades(t *testing.T) {
	w := newShop(t)
	for name, tc := range map[string]struct {
		request string
		want    int // 0: the connection is closed
	}{
		"health":            {request: "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", want: http.StatusOK},
		"no upgrade":        {request: "GET /v1/client HTTP/1.1\r\nHost: x\r\n\r\n", want: http.StatusUpgradeRequired},
		"another protocol":  {request: "GET /v1/client HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", want: http.StatusUpgradeRequired},
		"no Connection":     {request: "GET /v1/client HTTP/1.1\r\nHost: x\r\nUpgrade: sonde-tunnel\r\n\r\n", want: http.StatusUpgradeRequired},
		"POST":              {request: strings.Replace(goodUpgrade, "GET", "POST", 1), want: http.StatusMethodNotAllowed},
		"another path":      {request: strings.Replace(goodUpgrade, "/v1/client", "/v1/state", 1), want: http.StatusNotFound},
		"path with dots":    {request: strings.Replace(goodUpgrade, "/v1/client", "/v1/x/../client", 1), want: http.StatusTemporaryRedirect},
		"a body":            {request: strings.Replace(goodUpgrade, "\r\n\r\n", "\r\nContent-Length: 1\r\n\r\nx", 1), want: http.StatusBadRequest},
		"a chunked body":    {request: strings.Replace(goodUpgrade, "\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 1), want: http.StatusBadRequest},
		"HTTP/1.0":          {request: strings.Replace(goodUpgrade, "HTTP/1.1", "HTTP/1.0", 1), want: http.StatusBadRequest},
		"HTTP/2":            {request: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", want: http.StatusBadRequest},
		"oversized header":  {request: strings.Replace(goodUpgrade, "Host: x", "Host: x\r\nX: "+strings.Repeat("x", 64<<10), 1), want: http.StatusRequestHeaderFieldsTooLarge},
		"TLS":               {request: "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", want: http.StatusBadRequest},
		"pipelined request": {request: goodUpgrade + "GET /v1/client HTTP/1.1\r\n\r\n", want: http.StatusSwitchingProtocols}, // no handshake: closed
	} {
		t.Run(name, func(t *testing.T) {
			response, conn := w.upgrade(tc.request) //nolint:bodyclose // the body is the connection
			got := 0
			if response != nil {
				got = response.StatusCode
			}
			if got != tc.want {
				t.Errorf("status %d, want %d", got, tc.want)
			}
			if got == http.StatusSwitchingProtocols {
				if b, _ := io.ReadAll(conn); len(b) > 64 { // an alert at most
					t.Errorf("read %q", b)
				}
			}
		})
	}
	w.connect(w.alice, "alice")
	eventually(t, 5*time.Second, "a client connects", func() bool { return w.status().Routes["a"].Connected })
}
