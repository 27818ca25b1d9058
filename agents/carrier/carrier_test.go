package carrier

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// ask sends a request on a connection of its own and returns the answer's last three bytes: the server's name.
func (f *fixture) ask(t *testing.T, request string) string {
	t.Helper()
	c := f.dial(t)
	defer c.Close()
	_, _ = io.WriteString(c, request)
	_ = c.CloseWrite()
	answer, _ := readAll(c)
	return answer[max(0, len(answer)-3):]
}

func (f *fixture) awaitAnswer(t *testing.T, request, want string) {
	t.Helper()
	await(t, "an answer of "+want, func() bool { return f.ask(t, request) == want })
}

// servers returns an app and clients that answer with their names.
func servers() (app func(duplex), client func(string, duplex)) {
	return httpServer("app", &recorder{}), func(id string, s duplex) { httpServer(id, &recorder{})(s) }
}

// TestOverlapWithoutMatch: of two routes without a match, the older one gets requests and other connections, and the other one counts them.
func TestOverlapWithoutMatch(t *testing.T) {
	app, client := servers()
	older, newer := whole("old"), whole("new")
	newer.Created = older.Created.Add(time.Second)
	f := start(t, app, client, newer, older, byUser("cli", "alice"))
	if got := f.ask(t, alice); got != "cli" {
		t.Errorf("%s answers, want cli", got)
	}
	if got := f.ask(t, request("GET /")); got != "old" {
		t.Errorf("%s answers, want old", got)
	}
	c := f.dial(t)
	_, _ = c.Write([]byte{0, 1, 2}) // no HTTP
	await(t, "the counters", func() bool {
		r := f.newReport().Routes
		return r["old"].Matched == 2 && r["new"].Matched == 0 && r["new"].Overlaps == 2 && r["cli"].Overlaps == 0
	})
}

func TestReport(t *testing.T) {
	app, client := servers()
	all := whole("all")
	f := start(t, app, client, byUser("cli", "alice"), matching("new", -1, path(prefix("/a"))), dead(all))
	f.ask(t, alice)
	f.ask(t, request("POST /other"))
	f.ask(t, "") // a TCP probe
	long := request("POST /"+strings.Repeat("p", 300), "X-User: alice")
	f.ask(t, long)
	want := map[string]tunnel.Counters{
		"cli": {Connections: 4, Matched: 2, Passed: 2, BytesToClient: uint64(len(alice + long)), BytesFromClient: uint64(2 * len(fromCli))},
		"new": {Connections: 4, Passed: 2, Overlaps: 1},
		"all": {Connections: 4, Passed: 2},
	}
	await(t, "the counters", func() bool {
		r, _ := f.stowaway.last()
		return cmp.Equal(want, r.Routes)
	})
	r, requests := f.stowaway.last()
	if diff := cmp.Diff([]uint16{f.port}, r.Steered); r.Pod != "pod-uid" || diff != "" {
		t.Errorf("report of %q, steered (-want +got):\n%s", r.Pod, diff)
	}
	for i := range requests {
		if time.Since(requests[i].Time) > time.Minute {
			t.Errorf("request of %v", requests[i].Time)
		}
		requests[i].Time = time.Time{}
	}
	wantRequests := []tunnel.Request{
		{Number: 1, Pod: "pod-uid", Route: "cli", Port: f.port, Method: "GET", Path: "/a", Status: 200, Client: true},
		{Number: 2, Pod: "pod-uid", Route: "cli", Port: f.port, Method: "POST", Path: "/" + strings.Repeat("p", 255), Status: 200, Client: true},
	}
	if diff := cmp.Diff(wantRequests, requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	f.stowaway.mu.Lock()
	defer f.stowaway.mu.Unlock()
	if h := f.stowaway.opened[0]; h.Get(tunnel.HeaderPod) != "shop/web-0" || h.Get(tunnel.HeaderDestination) != f.pod.listener.Addr().String() || h.Get(tunnel.HeaderPeer) == "" {
		t.Errorf("headers of a stream: %v", h)
	}
}

// TestHistoryKeepsTheLast: a client can tell from the numbers how many of its requests are missing.
func TestHistoryKeepsTheLast(t *testing.T) {
	var h history
	a, b := &route{id: "a", standing: &standing{}}, &route{id: "b", standing: &standing{}}
	h.add(b, tunnel.Request{Status: 1})
	for i := range 100 {
		h.add(a, tunnel.Request{Status: i})
	}
	h.add(b, tunnel.Request{Status: 2})
	got := h.take()
	if len(got) != tunnel.MaxRequests || got[0].Status != 101-tunnel.MaxRequests || got[0].Number != 102-tunnel.MaxRequests || got[len(got)-1].Number != 2 {
		t.Errorf("%d requests, from %+v to %+v", len(got), got[0], got[len(got)-1])
	}
	if got := h.take(); len(got) != 0 {
		t.Errorf("%d requests are taken twice", len(got))
	}
	h.add(a, tunnel.Request{})
	if got := h.take(); len(got) != 1 || got[0].Number != 101 {
		t.Errorf("the next report has %+v", got)
	}
}

// TestAppHidesNoRequest: requests to the app do not take the place of one to a client.
func TestAppHidesNoRequest(t *testing.T) {
	app, client := servers()
	f := start(t, app, client, byUser("cli", "alice"))
	if got := f.ask(t, alice); got != "cli" {
		t.Fatalf("answer of %q", got)
	}
	for range 2 * tunnel.MaxRequests {
		f.ask(t, get)
	}
	await(t, "the requests to the app", func() bool {
		r, _ := f.stowaway.last()
		return r.Routes["cli"].Passed == 2*tunnel.MaxRequests
	})
	if _, requests := f.stowaway.last(); len(requests) != 1 || requests[0].Path != "/a" {
		t.Errorf("reported %+v, want the client's one", requests)
	}
}

// TestRefused checks that the app answers what the client does not take.
func TestRefused(t *testing.T) {
	app, _ := servers()
	for name, tc := range map[string]struct {
		route   tunnel.TableRoute
		request string
	}{
		"a request":    {byUser("a", "alice"), alice},
		"a body":       {byUser("a", "alice"), aliceSized},
		"a connection": {whole("a"), "\x00no HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(d duplex) {
				if tc.route.Match == nil {
					_, _ = io.ReadAll(d)
					_, _ = io.WriteString(d, "app")
					return
				}
				app(d)
			}, nil, tc.route)
			if got := f.ask(t, tc.request); got != "app" {
				t.Errorf("%q answered", got)
			}
			if got := f.newReport().Routes["a"]; got.Failed != 1 || got.Passed != 1 || got.Matched != 0 {
				t.Errorf("counters %+v", got)
			}
		})
	}
}

// TestClientComesBackOnAConnection checks that requests of one connection follow the client as it refuses, comes and is lost.
func TestClientComesBackOnAConnection(t *testing.T) {
	app, client := servers()
	f := start(t, app, nil, byUser("cli", "alice"))
	c := f.dial(t)
	ask := func(want string) {
		t.Helper()
		_, _ = io.WriteString(c, alice)
		b := make([]byte, len(fromCli))
		if _, err := io.ReadFull(c, b); err != nil || !strings.HasSuffix(string(b), want) {
			t.Fatalf("answer %q, %v; want one of %s", b, err, want)
		}
	}
	ask("app")
	f.stowaway.setServe(client)
	ask("cli")
	f.setRoutes(dead(byUser("cli", "alice")))
	await(t, "the route to be dead", func() bool { return !f.routes()[0].live })
	ask("app")
	f.setRoutes(byUser("cli", "alice"))
	await(t, "the route to be live", func() bool { return f.routes()[0].live })
	ask("cli")
	f.setRoutes()
	f.awaitRoutes(t, 0)
	ask("app")
}

// TestLiveRoutes checks that a carrier follows a Table without routes.
func TestLiveRoutes(t *testing.T) {
	app, client := servers()
	f := start(t, app, client, byUser("cli", "alice"), byUser("other", "bob"))
	if got := f.ask(t, alice); got != "cli" {
		t.Fatalf("%q answered", got)
	}
	f.stowaway.setLive("other", "a route that the carrier could not compile")
	await(t, "the loss", func() bool { return !f.routing.Load().byID["cli"].live && f.routing.Load().byID["other"].live })
	if got := f.ask(t, alice); got != "app" {
		t.Errorf("%q answered without a client", got)
	}
	f.stowaway.setLive("cli")
	await(t, "the client's return", func() bool { return f.routing.Load().byID["cli"].live && !f.routing.Load().byID["other"].live })
	if got := f.ask(t, alice); got != "cli" {
		t.Errorf("%q answered", got)
	}
	if got := f.newReport().Routes; len(got) != 2 || got["cli"].Matched != 2 {
		t.Errorf("counters %+v", got)
	}
}

func (f *fixture) routes() []*route { return f.routing.Load().port(f.port).all }

// TestSessionLost checks that the app answers while Stowaway is away, and the client after it.
func TestSessionLost(t *testing.T) {
	app, client := servers()
	f := start(t, app, client, byUser("cli", "alice"))
	if got := f.ask(t, alice); got != "cli" {
		t.Fatalf("%q answered", got)
	}
	for range 3 {
		f.stowaway.endSession()
		await(t, "the loss", func() bool { return !f.routes()[0].live })
		if got := f.ask(t, alice); got != "app" && got != "cli" {
			t.Errorf("%q answered without a session", got)
		}
		f.awaitAnswer(t, alice, "cli")
	}
	if got := f.newReport().Routes["cli"]; got.Matched < 4 {
		t.Errorf("counters %+v do not outlive a session", got)
	}
	if diff := cmp.Diff([]steering{{f.port, true}}, f.pod.steered(), cmp.AllowUnexported(steering{})); diff != "" {
		t.Errorf("steering within the grace period (-want +got):\n%s", diff)
	}
}

// TestRemovedRouteEndsItsStreams checks that a websocket to a client ends with the client's right.
func TestRemovedRouteEndsItsStreams(t *testing.T) {
	app, _ := servers()
	f := start(t, app, func(_ string, s duplex) { _, _ = io.Copy(s, s) }, probes(whole("a")))
	c := f.dial(t)
	_, _ = io.WriteString(c, "echo")
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	f.setRoutes()
	if rest, reset := readAll(c); rest != "" || !reset {
		t.Errorf("read %q, reset %v", rest, reset)
	}
}

// TestTCPProbes checks who gets a connection without bytes. A route with a match has no use for it, so ProbesToClient changes nothing there.
func TestTCPProbes(t *testing.T) {
	for name, tc := range map[string]struct {
		route tunnel.TableRoute
		want  tunnel.Counters
	}{
		"whole port":                       {whole("a"), tunnel.Counters{Connections: 1, Passed: 1}},
		"whole port, probes to the client": {probes(whole("a")), tunnel.Counters{Connections: 1, Matched: 1}},
		"match, probes to the client":      {probes(byUser("a", "alice")), tunnel.Counters{Connections: 1, Passed: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			app, client := servers()
			f := start(t, app, client, tc.route)
			f.ask(t, "")
			if got := f.newReport().Routes["a"]; got != tc.want {
				t.Errorf("counters %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestDialsTheDestination checks that the app is dialed where the peer connected to.
func TestDialsTheDestination(t *testing.T) {
	app, client := servers()
	f := start(t, app, client, byUser("cli", "alice"))
	f.ask(t, get)
	f.pod.mu.Lock()
	defer f.pod.mu.Unlock()
	if want := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), f.port); len(f.pod.dialed) != 1 || f.pod.dialed[0] != want {
		t.Errorf("dialed %v, want %v", f.pod.dialed, want)
	}
}

// TestAppRefuses checks that the peer is refused as the app would refuse it.
func TestAppRefuses(t *testing.T) {
	l := listen(t)
	_ = l.Close()
	_, client := servers()
	f := startWith(t, l.Addr().String(), client, DefaultConnections, byUser("cli", "alice"))
	c := f.dial(t)
	_, _ = io.WriteString(c, get)
	if rest, reset := readAll(c); rest != "" || !reset {
		t.Errorf("read %q, reset %v", rest, reset)
	}
}

// TestFull checks that a full carrier ends steering, and begins it again when it has room.
func TestFull(t *testing.T) {
	app, client := servers()
	f := startWith(t, serveTCP(t, app), client, 16, byUser("cli", "alice"))
	await(t, "steering", func() bool { return len(f.pod.steered()) == 1 })
	var conns []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", f.pod.listener.Addr().String())
		if err != nil {
			continue // reset at once
		}
		defer c.Close()
		_, _ = io.WriteString(c, get)
		conns = append(conns, c)
	}
	await(t, "the end of steering", func() bool { return len(f.pod.steered()) == 2 })
	if n := len(f.all()); n > 16 {
		t.Errorf("%d connections, want 16", n)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	await(t, "steering again", func() bool { return len(f.pod.steered()) == 3 })
	want := []steering{{f.port, true}, {f.port, false}, {f.port, true}}
	if diff := cmp.Diff(want, f.pod.steered(), cmp.AllowUnexported(steering{})); diff != "" {
		t.Errorf("steering (-want +got):\n%s", diff)
	}
}

// TestDrain checks that the carrier ends steering first, closes idle connections, and lets a request end.
func TestDrain(t *testing.T) {
	release := make(chan struct{})
	f := start(t, func(d duplex) {
		b := make([]byte, 1024)
		for {
			if _, err := d.Read(b); err != nil {
				return
			}
			if strings.Contains(string(b), "slow") {
				<-release
			}
			_, _ = io.WriteString(d, fromApp)
		}
	}, nil, byUser("cli", "alice"))
	await(t, "steering", func() bool { return len(f.pod.steered()) == 1 })
	idle, slow := f.dial(t), f.dial(t)
	_, _ = io.WriteString(idle, get)
	_, _ = io.ReadFull(idle, make([]byte, len(fromApp)))
	_, _ = io.WriteString(slow, request("GET /slow"))
	await(t, "the slow request", func() bool { return f.newReport().Routes["cli"].Passed == 2 })
	ended := make(chan error, 1)
	go func() { ended <- f.end() }()
	if rest, reset := readAll(idle); rest != "" || reset {
		t.Errorf("the idle connection gets %q, reset %v", rest, reset)
	}
	if got := f.pod.steered(); len(got) != 2 || got[1].on {
		t.Errorf("steering %v", got)
	}
	close(release)
	if rest, reset := readAll(slow); rest != fromApp || reset {
		t.Errorf("the slow request gets %q, reset %v", rest, reset)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestOpenerGone(t *testing.T) {
	app, client := servers()
	f := start(t, app, client, byUser("cli", "alice"))
	close(f.pod.done)
	await(t, "the end", func() bool { return f.closedNow() })
	if err := f.end(); !errors.Is(err, errOpenerGone) {
		t.Errorf("error %v", err)
	}
}

func (f *fixture) closedNow() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// TestRunRefuses checks that a carrier with rights does not start, and one that cannot give them up does not relay.
func TestRunRefuses(t *testing.T) {
	wrong := errors.New("wrong")
	fine := Config{
		Confined: func() error { return nil },
		Connect: func(context.Context) (Pod, error) {
			return &fakePod{listener: listen(t), done: make(chan struct{})}, nil
		},
		Restrict: func(string) (restriction.InForce, error) { return restriction.InForce{}, nil },
		Log:      slog.New(slog.DiscardHandler),
	}
	for name, change := range map[string]func(*Config){
		"not confined": func(c *Config) { c.Confined = func() error { return wrong } },
		"no opener":    func(c *Config) { c.Connect = func(context.Context) (Pod, error) { return nil, wrong } },
		"no restriction": func(c *Config) {
			c.Restrict = func(string) (restriction.InForce, error) { return restriction.InForce{}, wrong }
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := fine
			change(&cfg)
			if err := Run(t.Context(), &cfg); !errors.Is(err, wrong) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestSteerer follows the rules of steering with a clock of its own.
func TestSteerer(t *testing.T) {
	began := time.Unix(1000, 0)
	live, dying := whole("a"), dead(whole("a"))
	live.Port, dying.Port = 80, 80
	live.GracePeriod, dying.GracePeriod = 10*time.Second, 10*time.Second
	other := dead(byUser("b", "bob"))
	other.Port, other.GracePeriod = 80, 20*time.Second
	type step struct {
		at     time.Duration
		routes []tunnel.TableRoute
		full   bool
		fail   bool
		want   bool
		next   time.Duration
	}
	for name, steps := range map[string][]step{
		"not live at first":      {{routes: []tunnel.TableRoute{dying}}, {at: time.Hour, routes: []tunnel.TableRoute{dying}}, {at: 2 * time.Hour, routes: []tunnel.TableRoute{live}, want: true}},
		"removed":                {{routes: []tunnel.TableRoute{live}, want: true}, {at: 1}},
		"grace period":           {{routes: []tunnel.TableRoute{live}, want: true}, {at: 1, routes: []tunnel.TableRoute{dying}, want: true, next: 10*time.Second + 1}, {at: 10 * time.Second, routes: []tunnel.TableRoute{dying}, want: true, next: 10*time.Second + 1}, {at: 10*time.Second + 1, routes: []tunnel.TableRoute{dying}}},
		"the longest one":        {{routes: []tunnel.TableRoute{live, other}, want: true}, {routes: []tunnel.TableRoute{dying, other}, want: true, next: 20 * time.Second}, {at: 20 * time.Second, routes: []tunnel.TableRoute{dying, other}}},
		"back in time":           {{routes: []tunnel.TableRoute{live}, want: true}, {routes: []tunnel.TableRoute{dying}, want: true, next: 10 * time.Second}, {at: 9 * time.Second, routes: []tunnel.TableRoute{live}, want: true}, {at: 11 * time.Second, routes: []tunnel.TableRoute{dying}, want: true, next: 21 * time.Second}},
		"full":                   {{routes: []tunnel.TableRoute{live}, want: true}, {routes: []tunnel.TableRoute{live}, full: true}, {routes: []tunnel.TableRoute{live}, want: true}},
		"the opener fails to do": {{routes: []tunnel.TableRoute{live}, fail: true, next: steerRetry}, {at: steerRetry, routes: []tunnel.TableRoute{live}, want: true}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &fakePod{}
			s := newSteerer(pod.Steer, slog.New(slog.DiscardHandler))
			r := &routing{}
			for i, step := range steps {
				pod.fail = nil
				if step.fail {
					pod.fail = errors.New("no")
				}
				s.setFull(step.full)
				r = compile(t.Context(), &tunnel.Table{Routes: step.routes}, r, s.log)
				next := s.update(t.Context(), r, began.Add(step.at))
				var want time.Time
				if step.next > 0 {
					want = began.Add(step.next)
				}
				if got := s.steersAny(); got != step.want || !next.Equal(want) {
					t.Errorf("step %d: steered %v, next %v; want %v, %v", i, got, next, step.want, want)
				}
			}
		})
	}
}

func (s *steerer) steersAny() bool {
	steered, _ := s.ports()
	return len(steered) > 0
}

// TestSteeringWithoutAnAnswer: a port that the opener steers, but too late for an answer, is given back when its route is gone. Otherwise the
// carrier would get its connections for ever, even when it is full.
func TestSteeringWithoutAnAnswer(t *testing.T) {
	live := whole("a")
	live.Port = 80
	steered := map[uint16]bool{}
	late := errors.New("no answer")
	steer := func(_ context.Context, port uint16, on bool) error {
		steered[port] = on
		return late
	}
	s := newSteerer(steer, slog.New(slog.DiscardHandler))
	now := time.Unix(1000, 0)
	r := compile(t.Context(), &tunnel.Table{Routes: []tunnel.TableRoute{live}}, &routing{}, s.log)
	s.update(t.Context(), r, now)
	if !steered[80] || s.steersAny() {
		t.Fatalf("steered %v, and known as steered", steered)
	}
	late = nil
	if next := s.update(t.Context(), &routing{}, now); steered[80] || !next.IsZero() {
		t.Errorf("steered %v without a route, next %v", steered, next)
	}
}

// TestSteeringFollowsTheApp: a port is steered while the app listens on it, unless the client answers TCP probes. Otherwise probes that only
// connect would succeed at the carrier's listener.
func TestSteeringFollowsTheApp(t *testing.T) {
	for name, tc := range map[string]struct {
		route tunnel.TableRoute
		deaf  bool // what a port is without an app that listens
	}{
		"match":                            {byUser("a", "alice"), false},
		"match, probes to the client":      {probes(byUser("a", "alice")), false},
		"whole port":                       {whole("a"), false},
		"whole port, probes to the client": {probes(whole("a")), true},
	} {
		t.Run(name, func(t *testing.T) {
			pod, now := &fakePod{}, time.Unix(1000, 0)
			s := newSteerer(pod.Steer, slog.New(slog.DiscardHandler))
			s.listens = pod.Listens
			tc.route.Port = 80
			r := compile(t.Context(), &tunnel.Table{Routes: []tunnel.TableRoute{tc.route}}, &routing{}, s.log)
			for i, deaf := range []bool{true, false, true, false} {
				pod.deaf = deaf
				next := s.update(t.Context(), r, now)
				steered, unserved := s.ports()
				want := []uint16{80}
				if deaf && !tc.deaf {
					want = nil
				}
				if !slices.Equal(steered, want) || len(steered)+len(unserved) != 1 {
					t.Errorf("step %d, the app listens %t: steered %v, unserved %v, want %v to be steered", i, !deaf, steered, unserved, want)
				}
				if want := now.Add(listenInterval); !tc.deaf && !next.Equal(want) {
					t.Errorf("step %d: next %v, want %v", i, next, want)
				}
				now = now.Add(listenInterval)
			}
		})
	}
}

// TestAppThatStopsListening: connections to the port are refused again, as without a carrier, and redirected when the app is back.
func TestAppThatStopsListening(t *testing.T) {
	app, client := servers()
	f := start(t, app, client, byUser("cli", "alice"))
	for i, deaf := range []bool{false, true, false} {
		f.pod.mu.Lock()
		f.pod.deaf = deaf
		f.pod.mu.Unlock()
		await(t, "the port to follow the app", func() bool {
			all := f.pod.steered()
			return len(all) == i+1 && all[i] == steering{f.port, !deaf}
		})
	}
	f.awaitAnswer(t, alice, "cli")
}

// TestServedByNetHTTP relays between real clients and servers.
func TestServedByNetHTTP(t *testing.T) {
	f := startWith(t, serveTCP(t, func(d duplex) { serveHTTP(d.(net.Conn)) }), nil, DefaultConnections, byUser("cli", "alice"))
	client := http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	for range 20 {
		r, err := client.Post("http://"+f.pod.listener.Addr().String()+"/x", "text/plain", io.LimitReader(neverEnding('x'), 100_000))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || string(b) != "ok" {
			t.Errorf("answer %q, %v", b, err)
		}
	}
}

type neverEnding byte

func (c neverEnding) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(c)
	}
	return len(b), nil
}
