package carrier

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
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// patience of tests for what must happen.
const patience = 10 * time.Second

// fakePod has one listener, and its app listens on loopback.
type fakePod struct {
	listener net.Listener
	app      string
	done     chan struct{}

	mu     sync.Mutex
	dialed []netip.AddrPort
	steer  []steering
	fail   error
	// deaf: the app does not listen.
	deaf bool
	// onDial, if set, is called before the carrier gets a connection to the app.
	onDial func()
}

type steering struct {
	port uint16
	on   bool
}

func (p *fakePod) Listeners() []net.Listener { return []net.Listener{p.listener} }
func (p *fakePod) Done() <-chan struct{}     { return p.done }

func (p *fakePod) Steer(_ context.Context, port uint16, on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return p.fail
	}
	p.steer = append(p.steer, steering{port, on})
	return nil
}

func (p *fakePod) Listens(context.Context, uint16) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.deaf, nil
}

func (p *fakePod) steered() []steering {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]steering(nil), p.steer...)
}

func (p *fakePod) Dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	p.mu.Lock()
	p.dialed = append(p.dialed, to)
	onDial := p.onDial
	p.mu.Unlock()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.app)
	if err != nil {
		return nil, err
	}
	if onDial != nil {
		onDial()
	}
	return c.(*net.TCPConn), nil
}

// fakeStowaway speaks to one carrier, and answers streams itself.
type fakeStowaway struct {
	identity *tunnel.Identity
	carrier  tunnel.PublicKey
	listener net.Listener
	// serve answers a stream of a route; nil refuses.
	serve func(id string, s duplex)

	mu      sync.Mutex
	table   tunnel.Table
	changed chan struct{}
	reports []tunnel.Report
	cut     context.CancelFunc
	opened  []http.Header
}

func newStowaway(tb testing.TB, carrier tunnel.PublicKey, serve func(string, duplex)) *fakeStowaway {
	tb.Helper()
	s := &fakeStowaway{identity: newIdentity(tb), carrier: carrier, listener: listen(tb), serve: serve, changed: make(chan struct{})}
	s.table.Version = tunnel.Version
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := s.listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.session(ctx, c) })
		}
	})
	tb.Cleanup(func() {
		cancel()
		_ = s.listener.Close()
		wg.Wait()
	})
	return s
}

func (s *fakeStowaway) session(ctx context.Context, c net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.cut = cancel
	s.mu.Unlock()
	secure := tls.Server(c, s.identity.ServerTLS(func(k tunnel.PublicKey) bool { return k == s.carrier }))
	if tunnel.Handshake(ctx, secure) == nil {
		tunnel.Serve(ctx, secure, s, tunnel.Near)
	}
}

func (s *fakeStowaway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == tunnel.PathRoutes:
		s.sendTables(w, r)
	case r.URL.Path == tunnel.PathReport:
		for d := json.NewDecoder(r.Body); ; {
			var one tunnel.Report
			if d.Decode(&one) != nil {
				return
			}
			s.mu.Lock()
			s.reports = append(s.reports, one)
			s.mu.Unlock()
		}
	case strings.HasPrefix(r.URL.Path, tunnel.PathOpen):
		s.mu.Lock()
		serve := s.serve
		s.opened = append(s.opened, r.Header)
		s.mu.Unlock()
		if serve == nil {
			http.Error(w, "nothing listens there", http.StatusBadGateway)
			return
		}
		stream, err := tunnel.Accept(w, r)
		if err != nil {
			return
		}
		serve(strings.TrimPrefix(r.URL.Path, tunnel.PathOpen), stream)
	}
}

func (s *fakeStowaway) sendTables(w http.ResponseWriter, r *http.Request) {
	for {
		s.mu.Lock()
		b, err := json.Marshal(s.table)
		changed, known := s.changed, s.table.Live == nil || r.Header.Get(tunnel.HeaderLive) != ""
		s.mu.Unlock()
		if err != nil || !known {
			panic(fmt.Sprint("a Table that the carrier does not know: ", err))
		}
		if _, err := w.Write(append(b, '\n')); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

func (s *fakeStowaway) set(routes ...tunnel.TableRoute) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.Routes, s.table.Live = routes, nil
	close(s.changed)
	s.changed = make(chan struct{})
}

// setLive sends which routes are live, and not the routes.
func (s *fakeStowaway) setLive(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.Routes, s.table.Live = nil, &ids
	close(s.changed)
	s.changed = make(chan struct{})
}

// endSession cuts the connection to the carrier.
func (s *fakeStowaway) endSession() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut()
}

func (s *fakeStowaway) setServe(serve func(string, duplex)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve = serve
}

// last returns the newest report, and all requests that were reported.
func (s *fakeStowaway) last() (r tunnel.Report, requests []tunnel.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r = range s.reports {
		requests = append(requests, r.Requests...)
	}
	return r, requests
}

// fixture is a running carrier with everything around it.
type fixture struct {
	*Carrier
	pod      *fakePod
	stowaway *fakeStowaway
	port     uint16
	// over is the excess of memory.
	over atomic.Int64
	// end ends the carrier and returns its error.
	end func() error
}

// start runs a carrier whose app and clients are served by these functions. It waits until the routes are in force.
func start(tb testing.TB, app func(duplex), client func(id string, s duplex), routes ...tunnel.TableRoute) *fixture {
	tb.Helper()
	return startWith(tb, serveTCP(tb, app), client, DefaultConnections, routes...)
}

func startWith(tb testing.TB, app string, client func(id string, s duplex), connections int, routes ...tunnel.TableRoute) *fixture {
	tb.Helper()
	identity := newIdentity(tb)
	f := &fixture{pod: &fakePod{listener: listen(tb), app: app, done: make(chan struct{})}, stowaway: newStowaway(tb, identity.Key, client)}
	f.port = uint16(f.pod.listener.Addr().(*net.TCPAddr).Port)
	f.setRoutes(routes...)
	ctx, cancel := context.WithCancel(context.Background())
	cfg := &Config{
		Stowaway: f.stowaway.listener.Addr().String(), StowawayKey: f.stowaway.identity.Key, Identity: identity,
		PodUID: "pod-uid", Pod: "shop/web-0", Connections: connections, IdleAfter: DefaultIdle,
		Connect:  func(context.Context) (Pod, error) { return f.pod, nil },
		Confined: func() error { return nil },
		Restrict: func(string) (restriction.InForce, error) { return restriction.InForce{}, nil },
		Log:      slog.New(slog.DiscardHandler),
	}
	f.Carrier = newCarrier(cfg, f.pod)
	f.excess = func() int { return int(f.over.Load()) }
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	f.end = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	tb.Cleanup(func() { _ = f.end() })
	f.awaitRoutes(tb, len(routes))
	return f
}

// setRoutes sends a table whose routes have the fixture's port.
func (f *fixture) setRoutes(routes ...tunnel.TableRoute) {
	for i := range routes {
		routes[i].Port = f.port
	}
	f.stowaway.set(routes...)
}

func (f *fixture) awaitRoutes(tb testing.TB, n int) {
	tb.Helper()
	await(tb, "the routes", func() bool { return len(f.routing.Load().byID) == n })
}

func (f *fixture) dial(tb testing.TB) *net.TCPConn {
	tb.Helper()
	c, err := net.Dial("tcp", f.pod.listener.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// await polls until a condition holds.
func await(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func newIdentity(tb testing.TB) *tunnel.Identity {
	tb.Helper()
	i, err := tunnel.NewIdentity()
	if err != nil {
		tb.Fatal(err)
	}
	return i
}

func listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// serveTCP serves each connection and closes it. It returns the address.
func serveTCP(tb testing.TB, serve func(duplex)) string {
	tb.Helper()
	l := listen(tb)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().String()
}

// recorder keeps the bytes that a server received.
type recorder struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.Write(b)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.String()
}

// httpServer records what it reads, and answers each request of HTTP/1 with its name. After anything else it reads on.
func httpServer(name string, got *recorder) func(duplex) {
	return func(c duplex) {
		in := bufio.NewReaderSize(io.TeeReader(c, got), 128<<10)
		for {
			r, err := http.ReadRequest(in)
			if err == nil {
				_, err = io.Copy(io.Discard, r.Body)
			}
			if err != nil && strings.Contains(err.Error(), "too many Host headers") {
				return // as servers do; the carrier waits for an answer, and reads no further
			}
			if err != nil {
				_, _ = io.Copy(io.Discard, in)
				_ = c.CloseWrite()
				return
			}
			answer := reply(name)
			if r.Method == http.MethodHead {
				answer = answer[:strings.Index(answer, "\r\n\r\n")+4]
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
			if r.Close {
				_ = c.CloseWrite()
				_, _ = io.Copy(io.Discard, in)
				return
			}
		}
	}
}

// reply is the answer of httpServer.
func reply(name string) string { return "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + name }

// answer is one step of a scripted server.
type answer struct {
	// after this text was received
	after string
	send  string
	// end: "half" ends the direction, "close" the connection, "abort" resets it.
	end string
}

// scripted records what it reads, and sends what the script says. Then it reads on.
func scripted(got *recorder, script []answer) func(duplex) {
	return func(c duplex) {
		in := io.TeeReader(c, got)
		var seen string
		b := make([]byte, 128<<10)
		for _, step := range script {
			for !strings.Contains(seen, step.after) {
				n, err := in.Read(b)
				seen += string(b[:n])
				if err != nil {
					_ = c.CloseWrite()
					return
				}
			}
			_, seen, _ = strings.Cut(seen, step.after)
			_, _ = io.WriteString(c, step.send)
			switch step.end {
			case "half":
				_ = c.CloseWrite()
			case "close":
				_ = c.CloseWrite()
				return
			case "abort":
				if tcp, ok := c.(*net.TCPConn); ok {
					_ = tcp.SetLinger(0)
				}
				return
			}
		}
		_, _ = io.Copy(io.Discard, in)
		_ = c.CloseWrite()
	}
}

// byUser is a live route for requests with a user's field.
func byUser(id, user string) tunnel.TableRoute {
	return tunnel.TableRoute{
		ID: id, Live: true, GracePeriod: time.Minute, Created: time.Unix(0, 0),
		Match: &httpmatch.Match{Headers: []httpmatch.Header{{Name: "X-User", Text: exact(user)}}},
	}
}

// matching is a live route with a match.
func matching(id string, age int, m httpmatch.Match) tunnel.TableRoute {
	return tunnel.TableRoute{ID: id, Live: true, GracePeriod: time.Minute, Created: time.Unix(int64(-age), 0), Match: &m}
}

// whole is a live route for all connections.
func whole(id string) tunnel.TableRoute {
	return tunnel.TableRoute{ID: id, Live: true, GracePeriod: time.Minute, Created: time.Unix(0, 0)}
}

// readAll reads to the end. It reports whether the connection was reset.
func readAll(c net.Conn) (s string, reset bool) {
	b, err := io.ReadAll(c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return string(b) + "<timeout>", false
	}
	return string(b), err != nil
}
