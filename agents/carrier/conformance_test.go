package carrier

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// step is one thing that the raw socket client does.
type clientStep struct {
	// await this text before sending.
	await string
	send  string
}

// row is a conversation. Bytes are compared exactly.
type row struct {
	// routes; without them, requests with "X-User: alice" go to the client.
	routes []tunnel.TableRoute
	send   string
	// then are further steps.
	then []clientStep
	// app and client must have received this.
	app, client string
	// back must come back. The peer then ends its direction, and nothing more may come.
	back string
	// appSays and clientSays replace the servers that answer each request with "app" and "cli".
	appSays, clientSays []answer
	// closed: the carrier ends the connection before the peer does. reset: as an error.
	closed, reset bool
	// half: the peer ends its direction after send.
	half bool
}

const (
	get     = "GET / HTTP/1.1\r\nHost: web\r\n\r\n"
	alice   = "GET /a HTTP/1.1\r\nHost: web\r\nX-User: alice\r\n\r\n"
	fromApp = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\napp"
	fromCli = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ncli"
)

func TestConformance(t *testing.T) {
	n := 0
	for _, table := range []map[string]row{matchRows(), framingRows(), responseRows(), ambiguousRows(), ambiguousResponseRows(), otherRows()} {
		n += len(table)
		for name, r := range table {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r.run(t)
			})
		}
	}
	if n < 80 {
		t.Errorf("%d rows, want 80", n)
	}
}

func (r *row) run(t *testing.T) {
	t.Helper()
	var app, client recorder
	appServer, clientServer := httpServer("app", &app), httpServer("cli", &client)
	if r.appSays != nil {
		appServer = scripted(&app, r.appSays)
	}
	if r.clientSays != nil {
		clientServer = scripted(&client, r.clientSays)
	}
	routes := r.routes
	if routes == nil {
		routes = []tunnel.TableRoute{byUser("alice", "alice")}
	}
	f := start(t, appServer, func(_ string, s duplex) { clientServer(s) }, routes...)
	c := f.dial(t)
	_, _ = io.WriteString(c, r.send)
	if r.half {
		_ = c.CloseWrite()
	}
	back := ""
	var end error
	read := func(until func() bool) bool {
		b := make([]byte, 64<<10)
		for !until() {
			n, err := c.Read(b)
			back += string(b[:n])
			if err != nil {
				end = err
				return false
			}
		}
		return true
	}
	for _, s := range r.then {
		if !read(func() bool { return strings.Contains(back, s.await) }) {
			t.Fatalf("%q did not come back, but %q", s.await, back)
		}
		_, _ = io.WriteString(c, s.send)
	}
	ended := !read(func() bool { return !r.closed && !r.reset && len(back) >= len(r.back) })
	if !ended && !r.closed && !r.reset { // when the peer ends, bytes on their way to a client are dropped
		await(t, "what the servers receive", func() bool { return len(app.String()) >= len(r.app) && len(client.String()) >= len(r.client) })
	}
	if !ended {
		_ = c.CloseWrite()
		rest, reset := readAll(c)
		back += rest
		if reset {
			t.Error("the connection was reset")
		}
	} else if !r.closed && !r.reset || r.closed != errors.Is(end, io.EOF) {
		t.Errorf("the connection ended with %v", end)
	}
	_ = c.Close()
	await(t, "the end of the connection", func() bool { return len(f.all()) == 0 })
	for what, pair := range map[string][2]string{"the app": {r.app, app.String()}, "the client": {r.client, client.String()}, "the peer": {r.back, back}} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s received (-want +got):\n%s", what, diff)
		}
	}
}

// toClient and toApp are rows of one request with a match.
func toClient(m httpmatch.Match, request string) row {
	return row{routes: []tunnel.TableRoute{matching("a", 0, m)}, send: request, client: request, back: fromCli}
}

func toApp(m httpmatch.Match, request string) row {
	return row{routes: []tunnel.TableRoute{matching("a", 0, m)}, send: request, app: request, back: fromApp}
}

// request makes a request of a line and fields.
func request(line string, fields ...string) string {
	s := line + " HTTP/1.1\r\nHost: web\r\n"
	for _, f := range fields {
		s += f + "\r\n"
	}
	return s + "\r\n"
}

func path(t httpmatch.Text) httpmatch.Match   { return httpmatch.Match{Path: &t} }
func method(t httpmatch.Text) httpmatch.Match { return httpmatch.Match{Method: &t} }
func exact(s string) httpmatch.Text           { return httpmatch.Text{Exact: &s} }
func prefix(s string) httpmatch.Text          { return httpmatch.Text{Prefix: &s} }
func regex(s string) httpmatch.Text           { return httpmatch.Text{Regex: &s} }
func header(name string, t httpmatch.Text) httpmatch.Match {
	return httpmatch.Match{Headers: []httpmatch.Header{{Name: name, Text: t}}}
}

func both(require httpmatch.Require) httpmatch.Match {
	p := prefix("/api/")
	return httpmatch.Match{Require: require, Path: &p, Headers: []httpmatch.Header{{Name: "X-User", Text: exact("alice")}}}
}

func matchRows() map[string]row {
	return map[string]row{
		"path exact":                      toClient(path(exact("/a")), request("GET /a")),
		"path exact, longer":              toApp(path(exact("/a")), request("GET /a/")),
		"path exact, case":                toApp(path(exact("/a")), request("GET /A")),
		"path prefix":                     toClient(path(prefix("/api/")), request("GET /api/v1/x")),
		"path prefix, shorter":            toApp(path(prefix("/api/")), request("GET /api")),
		"path regex":                      toClient(path(regex("/v[0-9]+/x")), request("GET /v12/x")),
		"path regex is anchored":          toApp(path(regex("/v[0-9]+/x")), request("GET /v12/xy")),
		"path regex with alternatives":    toApp(path(regex("/a|/b")), request("GET /ab")),
		"path without its query":          toClient(path(exact("/a")), request("GET /a?b=/c")),
		"path with an empty query":        toClient(path(exact("/a")), request("GET /a?")),
		"query alone does not match":      toApp(path(prefix("/b")), request("GET /a?/b")),
		"odd query arrives":               toApp(path(exact("/b")), request("GET /a?x=1;y&&%zz")),
		"path encoding is not decoded":    toApp(path(exact("/a/b")), request("GET /a%2Fb")),
		"path encoding as sent":           toClient(path(exact("/a%2Fb")), request("GET /a%2Fb")),
		"path encoding, case":             toApp(path(exact("/a%2Fb")), request("GET /a%2fb")),
		"path with two slashes":           toApp(path(exact("/a/b")), request("GET /a//b")),
		"path with dots is not resolved":  toApp(path(exact("/b")), request("GET /a/../b")),
		"absolute target":                 toClient(path(exact("/a")), request("GET http://web/a?x")),
		"absolute target without a path":  toClient(path(exact("/")), request("GET http://web")),
		"absolute target, query alone":    toClient(path(exact("/")), request("GET http://web?x=/a")),
		"path with bytes above 0x7f":      toClient(path(exact("/caf\xc3\xa9")), request("GET /caf\xc3\xa9")),
		"method exact":                    toClient(method(exact("DELETE")), request("DELETE /")),
		"method, case":                    toApp(method(exact("DELETE")), request("delete /")),
		"method regex":                    toClient(method(regex("PUT|PATCH")), request("PATCH /")),
		"unknown method":                  toClient(method(prefix("X-")), request("X-PURGE /")),
		"OPTIONS *":                       toClient(path(exact("*")), request("OPTIONS *")),
		"header exact":                    toClient(header("X-User", exact("alice")), request("GET /", "X-User: alice")),
		"header value, case":              toApp(header("X-User", exact("alice")), request("GET /", "X-User: Alice")),
		"header name, case":               toClient(header("X-User", exact("alice")), request("GET /", "x-uSER: alice")),
		"header without a blank":          toClient(header("X-User", exact("alice")), request("GET /", "X-User:alice")),
		"header with blanks and tabs":     toClient(header("X-User", exact("alice")), request("GET /", "X-User: \t alice \t ")),
		"header repeated, the second one": toClient(header("X-User", exact("alice")), request("GET /", "X-User: bob", "x-user: alice")),
		"header repeated, none":           toApp(header("X-User", exact("alice")), request("GET /", "X-User: bob", "X-User: carol")),
		"header list is one value":        toApp(header("X-User", exact("alice")), request("GET /", "X-User: bob, alice")),
		"header prefix":                   toClient(header("Authorization", prefix("Bearer x")), request("GET /", "Authorization: Bearer xyz")),
		"header regex":                    toClient(header("Cookie", regex(".*\\bdev=alice\\b.*")), request("GET /", "Cookie: a=b; dev=alice; c=d")),
		"header empty":                    toClient(header("X-Empty", exact("")), request("GET /", "X-Empty:")),
		"header missing":                  toApp(header("X-Empty", exact("")), request("GET /")),
		"header longer name":              toApp(header("X-User", exact("alice")), request("GET /", "X-User-2: alice")),
		"header with bytes above 0x7f":    toClient(header("X-User", exact("ö")), request("GET /", "X-User: ö")),
		"odd bytes arrive":                toApp(header("X-User", exact("alice")), request("GET /", "X-Odd: \x80\xff;=\"\t", "x-MiXeD:   v  ", "TE: trailers", "Connection: x-hop", "X-Hop: 1")),
		"all of two":                      toClient(both(httpmatch.All), request("GET /api/x", "X-User: alice")),
		"all of two, one holds":           toApp(both(httpmatch.All), request("GET /api/x", "X-User: bob")),
		"any of two, one holds":           toClient(both(httpmatch.Any), request("GET /x", "X-User: alice")),
		"any of two, none holds":          toApp(both(httpmatch.Any), request("GET /x", "X-User: bob")),
		"not live":                        {routes: []tunnel.TableRoute{dead(byUser("a", "alice"))}, send: alice, app: alice, back: fromApp},
		"kube-probe that would match":     toApp(path(prefix("/")), request("GET /healthz", "User-Agent: kube-probe/1.35")),
		"kubelet's hook that would match": toApp(path(prefix("/")), request("GET /shutdown", "User-Agent: kube-lifecycle/1.36")),
		"kubelet's hook, whole port":      {routes: []tunnel.TableRoute{whole("a")}, send: request("GET /shutdown", "User-Agent: kube-lifecycle/1.36"), app: request("GET /shutdown", "User-Agent: kube-lifecycle/1.36"), back: fromApp},
		"kube-probe in another field":     toClient(path(prefix("/")), request("GET /healthz", "X-Agent: kube-probe/1.35")),
		"kube-probe, whole port":          {routes: []tunnel.TableRoute{whole("a")}, send: request("GET /", "user-agent: kube-probe/1.35"), app: request("GET /", "user-agent: kube-probe/1.35"), back: fromApp},
		"whole port":                      {routes: []tunnel.TableRoute{whole("a")}, send: get, client: get, back: fromCli},
		"match and whole port: the match": {routes: []tunnel.TableRoute{whole("b"), dead(byUser("a", "alice"))}, send: alice + get, app: alice, client: get, back: fromApp + fromCli},
		"whole port, TCP probes to the client": {
			routes: []tunnel.TableRoute{probes(whole("a"))}, send: request("GET /", "User-Agent: kube-probe/1.35"), app: request("GET /", "User-Agent: kube-probe/1.35"), back: fromApp,
		},
	}
}

func dead(r tunnel.TableRoute) tunnel.TableRoute {
	r.Live = false
	return r
}

func probes(r tunnel.TableRoute) tunnel.TableRoute {
	r.ProbesToClient = true
	return r
}

const (
	sizedBody   = "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 5\r\n\r\nhello"
	aliceSized  = "POST / HTTP/1.1\r\nX-User: alice\r\nContent-Length: 5\r\n\r\nGET /"
	chunkedHead = "POST / HTTP/1.1\r\nHost: web\r\nTransfer-Encoding: chunked\r\n\r\n"
	aliceChunks = "POST / HTTP/1.1\r\nX-User: alice\r\nTransfer-Encoding: Chunked\r\n\r\n"
	chunks      = "5\r\nhello\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\n\r\n"
	trailers    = "3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-User: alice\r\n\r\n"
)

func framingRows() map[string]row {
	big := strings.Repeat("0123456789abcdef", 40<<10) // 640 KiB
	bigPost := "POST / HTTP/1.1\r\nContent-Length: 655360\r\n\r\n" + big
	bigAlice := "POST / HTTP/1.1\r\nX-User: alice\r\nContent-Length: 655360\r\n\r\n" + big
	bigChunks := "50000\r\n" + big[:0x50000] + "\r\n50000\r\n" + big[0x50000:] + "\r\n0\r\n\r\n"
	long := request("GET /", "X-Long: "+strings.Repeat("a", 60<<10))
	return map[string]row{
		"keep-alive: app, client, app":       {send: get, then: []clientStep{{"app", alice}, {"cli", get}}, app: get + get, client: alice, back: fromApp + fromCli + fromApp},
		"keep-alive: client, app, client":    {send: alice, then: []clientStep{{"cli", get}, {"app", alice}}, app: get, client: alice + alice, back: fromCli + fromApp + fromCli},
		"pipelined, the match in the middle": {send: get + alice + get, app: get + get, client: alice, back: fromApp + fromCli + fromApp},
		"pipelined, many":                    {send: strings.Repeat(get+alice, 20), app: strings.Repeat(get, 20), client: strings.Repeat(alice, 20), back: strings.Repeat(fromApp+fromCli, 20)},
		"pipelined with bodies":              {send: sizedBody + aliceSized + chunkedHead + chunks + alice, app: sizedBody + chunkedHead + chunks, client: aliceSized + alice, back: fromApp + fromCli + fromApp + fromCli},
		"body that looks like a request":     {send: "POST / HTTP/1.1\r\nContent-Length: 45\r\n\r\n" + alice + get, app: "POST / HTTP/1.1\r\nContent-Length: 45\r\n\r\n" + alice + get, back: fromApp + fromApp},
		"content length 0":                   {send: "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + alice, app: "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", client: alice, back: fromApp + fromCli},
		"chunked to the app":                 {send: chunkedHead + chunks + alice, app: chunkedHead + chunks, client: alice, back: fromApp + fromCli},
		"chunked to the client":              {send: aliceChunks + chunks + get, app: get, client: aliceChunks + chunks, back: fromCli + fromApp},
		"trailers do not match":              {send: chunkedHead + trailers + alice, app: chunkedHead + trailers, client: alice, back: fromApp + fromCli},
		"chunked, in two pieces":             {send: aliceChunks + chunks[:7], then: []clientStep{{"", chunks[7:]}}, client: aliceChunks + chunks, back: fromCli},
		"large body to the app":              {send: bigPost + alice, app: bigPost, client: alice, back: fromApp + fromCli},
		"large body to the client":           {send: bigAlice + get, app: get, client: bigAlice, back: fromCli + fromApp},
		"large chunks to the app":            {send: chunkedHead + bigChunks + alice, app: chunkedHead + bigChunks, client: alice, back: fromApp + fromCli},
		"large chunks to the client":         {send: aliceChunks + bigChunks + get, app: get, client: aliceChunks + bigChunks, back: fromCli + fromApp},
		"head of 60 KiB":                     {send: long + alice, app: long, client: alice, back: fromApp + fromCli},
		"HTTP/1.0":                           {send: "GET / HTTP/1.0\r\n\r\n", app: "GET / HTTP/1.0\r\n\r\n", back: fromApp, closed: true},
		"HTTP/1.0 to the client":             {send: "GET / HTTP/1.0\r\nX-User: alice\r\n\r\n", client: "GET / HTTP/1.0\r\nX-User: alice\r\n\r\n", back: fromCli, closed: true},
		"HTTP/1.0 with keep-alive":           {send: "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", then: []clientStep{{"app", alice}}, app: "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", client: alice, back: fromApp + fromCli},
		"nothing is read after close":        {send: request("GET /", "X-User: alice", "Connection: x, Close") + get, client: request("GET /", "X-User: alice", "Connection: x, Close"), back: fromCli, closed: true},
		"the app gets what follows close":    {send: request("GET /", "Connection: close") + alice, app: request("GET /", "Connection: close") + alice, back: fromApp, closed: true},
		"half-closed after the request":      {half: true, closed: true, send: get, app: get, back: fromApp},
		"100-continue from the app": {
			send: request("POST /", "Expect: 100-continue", "Content-Length: 2"), then: []clientStep{{"100 Continue\r\n\r\n", "hi"}, {"app", alice}},
			app: request("POST /", "Expect: 100-continue", "Content-Length: 2") + "hi", client: alice, back: "HTTP/1.1 100 Continue\r\n\r\n" + fromApp + fromCli,
			appSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 100 Continue\r\n\r\n"}, {after: "hi", send: fromApp}},
		},
		"100-continue from the client": {
			send: request("POST /", "X-User: alice", "Expect: 100-continue", "Content-Length: 2"), then: []clientStep{{"100 Continue\r\n\r\n", "hi"}, {"cli", get}},
			client: request("POST /", "X-User: alice", "Expect: 100-continue", "Content-Length: 2") + "hi", app: get, back: "HTTP/1.1 100 Continue\r\n\r\n" + fromCli + fromApp,
			clientSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 100 Continue\r\n\r\n"}, {after: "hi", send: fromCli}},
		},
		"100-continue, the body at once": {
			send: request("POST /", "Expect: 100-continue", "Content-Length: 2") + "hi" + alice, app: request("POST /", "Expect: 100-continue", "Content-Length: 2") + "hi", client: alice,
			back: fromApp + fromCli, appSays: []answer{{after: "hi", send: fromApp}},
		},
		"refused before 100, app": {
			send: request("POST /", "Expect: 100-continue", "Content-Length: 2"), then: []clientStep{{"417 No", alice}},
			app: request("POST /", "Expect: 100-continue", "Content-Length: 2") + alice, back: "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n",
			appSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"}},
		},
		"refused before 100, client": {
			send: request("POST /", "X-User: alice", "Expect: 100-continue", "Content-Length: 2"), then: []clientStep{{"417 No\r\nContent-Length: 0\r\n\r\n", get}},
			client: request("POST /", "X-User: alice", "Expect: 100-continue", "Content-Length: 2"), back: "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n", reset: true,
			clientSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"}},
		},
	}
}

// answering is a row of a request to the app with a special answer, after which a request goes to the client, and the app again.
func answering(request, response string) row {
	return row{
		send: request + alice + get, app: request + get, client: alice, back: response + fromCli + fromApp,
		appSays: []answer{{after: request, send: response}, {after: get, send: fromApp}},
	}
}

func responseRows() map[string]row {
	big := strings.Repeat("0123456789abcdef", 40<<10)
	upgrade := request("GET /ws", "Connection: Upgrade", "Upgrade: websocket")
	aliceUpgrade := request("GET /ws", "X-User: alice", "Connection: Upgrade", "Upgrade: websocket")
	aliceH2C := request("GET /a", "X-User: alice", "Connection: Upgrade, HTTP2-Settings", "Upgrade: foo, H2C", "HTTP2-Settings: AAMAAABk")
	switching := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
	connect := "CONNECT db:5432 HTTP/1.1\r\nHost: db\r\n\r\n"
	return map[string]row{
		"HEAD":                           answering("HEAD / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"),
		"HEAD, chunked":                  answering("HEAD / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
		"204":                            answering(get+"", "HTTP/1.1 204 No Content\r\n\r\n"),
		"304 with a length":              answering(get+"", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
		"103 and a final head":           answering(get+"", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"),
		"an interim head of no length":   answering(get+"", "HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\nHTTP/1.1 204 N\r\n\r\n"),
		"two interim heads":              answering(get+"", "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 N\r\n\r\n"),
		"chunked response":               answering(get+"", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n"),
		"no reason":                      answering(get+"", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"),
		"line ends without CR":           answering(get+"", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"),
		"large response":                 answering(get+"", "HTTP/1.1 200 OK\r\nContent-Length: 655360\r\n\r\n"+big),
		"odd bytes in a response":        answering(get+"", "HTTP/1.1 200 \xff\r\nX-oDD:  \x80\x01 \r\nContent-Length: 1\r\n\r\n\x00"),
		"response until close":           {send: get, app: get, back: "HTTP/1.1 200 OK\r\n\r\nto the end", closed: true, appSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 200 OK\r\n\r\nto the end", end: "close"}}},
		"HTTP/1.0 response":              {send: get, app: get, back: "HTTP/1.0 200 OK\r\n\r\nto the end", closed: true, appSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.0 200 OK\r\n\r\nto the end", end: "close"}}},
		"client: response until close":   {send: alice, client: alice, back: "HTTP/1.1 200 OK\r\n\r\nto the end", closed: true, clientSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 200 OK\r\n\r\nto the end", end: "close"}}},
		"client: until close, a request": {send: alice, then: []clientStep{{"to the end", get}}, client: alice, back: "HTTP/1.1 200 OK\r\n\r\nto the end", reset: true, clientSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 200 OK\r\n\r\nto the end"}}},
		"close, and the client is not used any more": {
			send: alice, then: []clientStep{{fromCli, request("GET /", "Connection: close")}}, client: alice, app: request("GET /", "Connection: close"),
			back: fromCli + fromApp, closed: true,
		},
		"half-closed, and the client is not used any more": {
			half: true, send: alice + get, client: alice, app: get, back: fromCli + "HTTP/1.1 200 OK\r\n\r\nto the end", closed: true,
			appSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 200 OK\r\n\r\nto the end", end: "close"}},
		},
		"response with close":            {send: get, app: get, back: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", closed: true, appSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", end: "close"}}},
		"app closes in keep-alive":       {send: get, app: get, back: fromApp, closed: true, appSays: []answer{{after: "\r\n\r\n", send: fromApp, end: "close"}}},
		"app closes in mid-response":     {send: get, app: get, back: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", closed: true, appSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", end: "close"}}},
		"app closes in a large response": {send: get, app: get, back: "HTTP/1.1 200 OK\r\nContent-Length: 655360\r\n\r\n" + big[:300<<10], closed: true, appSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 200 OK\r\nContent-Length: 655360\r\n\r\n" + big[:300<<10], end: "close"}}},
		"app closes in mid-head":         {send: get, app: get, back: "HTTP/1.1 200 O", closed: true, appSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 200 O", end: "close"}}},
		"client gone in mid-response":    {send: alice, client: alice, back: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", reset: true, clientSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", end: "abort"}}},
		"client gone, until close":       {send: alice, client: alice, back: "HTTP/1.1 200 OK\r\n\r\nhalf", reset: true, clientSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 200 OK\r\n\r\nhalf", end: "abort"}}},
		"client gone before a response":  {send: alice, client: alice, reset: true, clientSays: []answer{{after: "\r\n\r\n", end: "abort"}}},
		"client gone in mid-request":     {send: aliceSized[:len(aliceSized)-2], client: aliceSized[:len(aliceSized)-2], reset: true, clientSays: []answer{{after: "\r\n\r\nG", end: "abort"}}},
		"early response of the app": {
			send: "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nab", then: []clientStep{{"no", "cd" + alice}}, app: "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd", client: alice,
			back: "HTTP/1.1 403 F\r\nContent-Length: 2\r\n\r\nno" + fromCli, appSays: []answer{{after: "ab", send: "HTTP/1.1 403 F\r\nContent-Length: 2\r\n\r\nno"}},
		},
		"early response of the client": {
			send: aliceSized[:len(aliceSized)-2], then: []clientStep{{"no", " /" + get}}, client: aliceSized, app: get,
			back: "HTTP/1.1 403 F\r\nContent-Length: 2\r\n\r\nno" + fromApp, clientSays: []answer{{after: "GET", send: "HTTP/1.1 403 F\r\nContent-Length: 2\r\n\r\nno"}},
		},
		"early response and close":              {send: "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab", app: "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab", back: fromApp, closed: true, appSays: []answer{{after: "ab", send: fromApp, end: "close"}}},
		"websocket of the app":                  {send: upgrade, then: []clientStep{{"101", alice}, {"pong", "\x00more"}}, app: upgrade + alice + "\x00more", back: switching + "pong" + "end", appSays: []answer{{after: "\r\n\r\n", send: switching}, {after: alice, send: "pong"}, {after: "more", send: "end"}}},
		"websocket of the client":               {send: aliceUpgrade, then: []clientStep{{"101", get}, {"pong", "\x00more"}}, client: aliceUpgrade + get + "\x00more", back: switching + "pong" + "end", clientSays: []answer{{after: "\r\n\r\n", send: switching}, {after: get, send: "pong"}, {after: "more", send: "end"}}},
		"client upgrades to HTTP/2":             {send: aliceH2C, client: aliceH2C, reset: true, clientSays: []answer{{after: "\r\n\r\n", send: switching}}},
		"client ignores HTTP/2":                 {send: aliceH2C + get, client: aliceH2C, app: get, back: fromCli + fromApp},
		"client upgrades to HTTP/2, whole port": inPort(row{send: aliceH2C, then: []clientStep{{"101", get}}, client: aliceH2C + get, back: switching + "x", clientSays: []answer{{after: "\r\n\r\n", send: switching}, {after: get, send: "x"}}}),
		"bytes right after 101":                 {send: upgrade, app: upgrade, back: switching + "\x81\x00", appSays: []answer{{after: "\r\n\r\n", send: switching + "\x81\x00"}}},
		"upgrade refused":                       {send: upgrade + alice, app: upgrade, client: alice, back: fromApp + fromCli},
		"client upgrades unasked":               {send: alice, client: alice, reset: true, clientSays: []answer{{after: "\r\n\r\n", send: switching}}},
		"client says more than its answer":      {send: alice, client: alice, back: fromCli, reset: true, clientSays: []answer{{after: "\r\n\r\n", send: fromCli + fromCli}}},
		"client's answer is not HTTP":           {send: alice, client: alice, reset: true, clientSays: []answer{{after: "\r\n\r\n", send: "hello"}}},
		"app's answer is not HTTP":              {send: get, then: []clientStep{{"hello", alice}}, app: get + alice, back: "hello", appSays: []answer{{after: "\r\n\r\n", send: "hello"}}},
		"bad chunk in an answer of the app":     {send: get, then: []clientStep{{"zz", alice}}, app: get + alice, back: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", appSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}}},
		"CONNECT":                               {send: connect, then: []clientStep{{"200", alice}}, app: connect + alice, back: "HTTP/1.1 200 OK\r\n\r\nhi", appSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 200 OK\r\n\r\n"}, {after: alice, send: "hi"}}},
		"CONNECT refused":                       {send: connect + alice, app: connect, client: alice, back: "HTTP/1.1 403 F\r\nContent-Length: 0\r\n\r\n" + fromCli, appSays: []answer{{after: "\r\n\r\n", send: "HTTP/1.1 403 F\r\nContent-Length: 0\r\n\r\n"}}},
	}
}

// ambiguous is a row whose bytes all go to the app, and so do later ones that would match.
func ambiguous(send string) row {
	return row{send: send, then: []clientStep{{"400", alice}}, app: send + alice, back: "HTTP/1.1 400 B\r\n\r\nbye", appSays: []answer{{after: send, send: "HTTP/1.1 400 B\r\n\r\n"}, {after: alice, send: "bye"}}}
}

func ambiguousRows() map[string]row {
	post := func(fields string) row {
		return ambiguous("POST / HTTP/1.1\r\nX-User: alice\r\n" + fields + "\r\n\r\n0\r\n\r\n")
	}
	afterFirst := ambiguous("GET / HTTP/1.1\r\nX-User: alice\r\nBad Name: x\r\n\r\n")
	afterFirst.send, afterFirst.client, afterFirst.back = alice+afterFirst.send, alice, fromCli+afterFirst.back
	return map[string]row{
		"both lengths":                       post("Content-Length: 5\r\nTransfer-Encoding: chunked"),
		"both lengths, reversed":             post("transfer-encoding: chunked\r\ncontent-length: 5"),
		"differing lengths":                  post("Content-Length: 5\r\nContent-Length: 6"),
		"repeated length":                    post("Content-Length: 5\r\nContent-Length: 5"),
		"list of lengths":                    post("Content-Length: 5, 5"),
		"length with a sign":                 post("Content-Length: +5"),
		"length in hexadecimal":              post("Content-Length: 0x5"),
		"empty length":                       post("Content-Length:"),
		"length that overflows":              post("Content-Length: 18446744073709551621"),
		"length with a blank before":         post("Content-Length : 5"),
		"encoding with a tab before":         post("Transfer-Encoding\t: chunked"),
		"two encodings":                      post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
		"encoding list":                      post("Transfer-Encoding: gzip, chunked"),
		"encoding unknown":                   post("Transfer-Encoding: xchunked"),
		"encoding in quotes":                 post("Transfer-Encoding: \"chunked\""),
		"encoding with a Kelvin sign":        post("Transfer-Encoding: chun\u212aed"),
		"encoding in HTTP/1.0":               ambiguous("POST / HTTP/1.0\r\nX-User: alice\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
		"folded line":                        post("X-A: b\r\n c"),
		"folded line with a tab":             post("X-A: b\r\n\tc"),
		"first field begins with a blank":    ambiguous("GET / HTTP/1.1\r\n X-User: alice\r\n\r\n"),
		"line without a colon":               post("Content-Length"),
		"empty name":                         post(": x"),
		"blank in a name":                    post("X A: x"),
		"bare LF between fields":             post("X-A: b\nContent-Length: 5"),
		"bare LF at the end of the head":     ambiguous("GET / HTTP/1.1\r\nX-User: alice\r\n\nrest"),
		"bare LF after the line":             ambiguous("GET / HTTP/1.1\nX-User: alice\n\n"),
		"bare CR in a value":                 post("X-A: b\rContent-Length: 5"),
		"CR CR LF":                           post("X-A: b\r"),
		"NUL in a value":                     post("X-A: b\x00c"),
		"NUL in a name":                      post("X-\x00A: b"),
		"control byte in a value":            post("X-A: b\x01c"),
		"DEL in a value":                     post("X-A: b\x7fc"),
		"empty line before a request":        ambiguous("\r\n" + alice),
		"line ends in front":                 ambiguous("\n\n" + alice),
		"two blanks in the line":             ambiguous("GET  / HTTP/1.1\r\nX-User: alice\r\n\r\n"),
		"tab in the line":                    ambiguous("GET\t/ HTTP/1.1\r\nX-User: alice\r\n\r\n"),
		"blank in the target":                ambiguous("GET /a b HTTP/1.1\r\nX-User: alice\r\n\r\n"),
		"HTTP/0.9":                           ambiguous("GET /\r\nX-User: alice\r\n\r\n"),
		"HTTP/1.2":                           ambiguous("GET / HTTP/1.2\r\nX-User: alice\r\n\r\n"),
		"HTTP/2.0 in a line":                 ambiguous("GET / HTTP/2.0\r\nX-User: alice\r\n\r\n"),
		"http in small letters":              ambiguous("GET / http/1.1\r\nX-User: alice\r\n\r\n"),
		"blank after the version":            ambiguous("GET / HTTP/1.1 \r\nX-User: alice\r\n\r\n"),
		"long method":                        ambiguous(strings.Repeat("M", 33) + " / HTTP/1.1\r\nX-User: alice\r\n\r\n"),
		"head over 64 KiB":                   ambiguous("GET / HTTP/1.1\r\nX-User: alice\r\nX-Long: " + strings.Repeat("a", 65<<10) + "\r\n\r\n"),
		"line over 64 KiB":                   ambiguous("GET /" + strings.Repeat("a", 65<<10) + " HTTP/1.1\r\nX-User: alice\r\n\r\n"),
		"bad chunk at once, to the app":      ambiguous(chunkedHead + "5\r\nhelloX\r\n0\r\n\r\n"),
		"bad chunk at once, for the client":  ambiguous(aliceChunks + "5\r\nhello0\r\n\r\n"),
		"chunk size empty":                   ambiguous(aliceChunks + "\r\nhello"),
		"chunk size with a blank":            ambiguous(aliceChunks + "5 \r\nhello"),
		"chunk size with a sign":             ambiguous(aliceChunks + "+5\r\nhello"),
		"chunk size with 0x":                 ambiguous(aliceChunks + "0x5\r\nhello"),
		"chunk size that overflows":          ambiguous(aliceChunks + "fffffffffffffffff\r\nhello"),
		"chunk size with a bare LF":          ambiguous(aliceChunks + "5\nhello\r\n"),
		"chunk extension with a bare CR":     ambiguous(aliceChunks + "5;a\rb\r\nhello\r\n"),
		"chunk extension too long":           ambiguous(aliceChunks + "5;" + strings.Repeat("a", 2000) + "\r\nhello\r\n"),
		"trailer with a blank in its name":   ambiguous(aliceChunks + "0\r\nX A: b\r\n\r\n"),
		"trailer that is folded":             ambiguous(aliceChunks + "0\r\nX-A: b\r\n c\r\n\r\n"),
		"ambiguous after a request":          afterFirst,
		"bad chunk later, to the app":        {send: chunkedHead + "5\r\nhe", then: []clientStep{{"", "lloX\r\n" + alice}}, app: chunkedHead + "5\r\nhelloX\r\n" + alice, back: "HTTP/1.1 400 B\r\n\r\n", appSays: []answer{{after: alice, send: "HTTP/1.1 400 B\r\n\r\n"}}},
		"bad chunk later, to the client":     {send: aliceChunks + "5\r\nhe", then: []clientStep{{"100", "lloX\r\n"}}, client: aliceChunks + "5\r\nhe", back: "HTTP/1.1 100 C\r\n\r\n", reset: true, clientSays: []answer{{after: "he", send: "HTTP/1.1 100 C\r\n\r\n"}}},
		"whole port, ambiguous HTTP":         inPort(ambiguous("GET / HTTP/1.1\r\nBad Name: x\r\n\r\n")),
		"connection ends in mid-head":        {half: true, send: "GET / HTTP/1.1\r\nX-User: al", app: "GET / HTTP/1.1\r\nX-User: al", appSays: []answer{{after: "al"}}},
		"connection ends in mid-line":        {half: true, send: "GE", app: "GE", appSays: []answer{{after: "GE"}}},
		"connection ends in mid-body":        {send: sizedBody[:len(sizedBody)-1], app: sizedBody[:len(sizedBody)-1], appSays: []answer{{after: "hell"}}},
		"connection ends in mid-body, alice": {send: aliceSized[:len(aliceSized)-1], client: aliceSized[:len(aliceSized)-1], clientSays: []answer{{after: "GET "}}},
	}
}

// ambiguousResponseRows have responses about whose end two parsers could disagree. The app keeps such a connection, and its further requests.
// The carrier resets a client's connection before the peer gets a byte: the peer could take the client's next bytes for the response to
// another request.
func ambiguousResponseRows() map[string]row {
	rows := map[string]row{}
	for name, response := range map[string]string{
		"differing lengths":              "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
		"repeated length":                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
		"both lengths":                   "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
		"length with a blank before":     "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
		"length with a tab before":       "HTTP/1.1 200 OK\r\nContent-Length\t: 2\r\n\r\nok",
		"length after a blank":           "HTTP/1.1 200 OK\r\n Content-Length: 2\r\n\r\nok",
		"length in a folded line":        "HTTP/1.1 200 OK\r\nX-A: b\r\n Content-Length: 2\r\n\r\nok",
		"length folded":                  "HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\nok",
		"length and a folded line":       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\t0\r\n\r\nok",
		"length after a bare CR":         "HTTP/1.1 200 OK\r\nX-A: b\rContent-Length: 2\r\n\r\nok",
		"bare CR in the status line":     "HTTP/1.1 200 OK\rContent-Length: 2\r\n\r\nok",
		"bare CR in a name":              "HTTP/1.1 200 OK\r\nX-A\rContent-Length: 2\r\n\r\nok",
		"CR CR LF":                       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\r\n\r\nok",
		"CR CR LF in place of the end":   "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\r\n\r\nok",
		"NUL in a value":                 "HTTP/1.1 200 OK\r\nX-A: b\x00\r\nContent-Length: 2\r\n\r\nok",
		"NUL in a name":                  "HTTP/1.1 200 OK\r\nContent-Length\x00: 2\r\n\r\nok",
		"line without a colon":           "HTTP/1.1 200 OK\r\nContent-Length\r\n\r\nok",
		"empty name":                     "HTTP/1.1 200 OK\r\n: 2\r\nContent-Length: 2\r\n\r\nok",
		"blank in a name":                "HTTP/1.1 200 OK\r\nX A: b\r\nContent-Length: 2\r\n\r\nok",
		"encoding with a blank before":   "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"encoding with a Kelvin sign":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chun\u212aed\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"close with a blank before":      "HTTP/1.1 200 OK\r\nConnection : close\r\nContent-Length: 2\r\n\r\nok",
		"interim head with a length":     "HTTP/1.1 103 E\r\nContent-Length: 38\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"interim head with chunks":       "HTTP/1.1 103 E\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"interim head with a blank":      "HTTP/1.1 103 E\r\nX-A : b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"two blanks in the status line":  "HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.2":                       "HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"line ends without CR and blank": "HTTP/1.1 200 OK\nContent-Length : 2\n\nok",
	} {
		rows["app answers: "+name] = row{
			send: get, then: []clientStep{{"ok", get}, {"again", alice}}, app: get + get + alice, back: response + "again" + "and again",
			appSays: []answer{{after: get, send: response}, {after: get, send: "again"}, {after: alice, send: "and again"}},
		}
		rows["client answers: "+name] = row{send: alice, client: alice, reset: true, clientSays: []answer{{after: alice, send: response}}}
	}
	return rows
}

// inPort makes a row's port one with a route without match.
func inPort(r row) row {
	r.routes = []tunnel.TableRoute{whole("a")}
	return r
}

func otherRows() map[string]row {
	hello := "\x16\x03\x01\x00\x05hello"
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	greeting := []answer{{send: "220 ready\r\n"}, {after: "QUIT\r\n", send: "221 bye\r\n"}}
	return map[string]row{
		"TLS goes to the app":              {send: hello, then: []clientStep{{"server", alice}}, app: hello + alice, back: "server", appSays: []answer{{after: "hello", send: "server"}}},
		"TLS, whole port":                  inPort(row{send: hello, then: []clientStep{{"server", get}}, client: hello + get, back: "server", clientSays: []answer{{after: "hello", send: "server"}}}),
		"HTTP/2 goes to the app":           {send: preface, then: []clientStep{{"settings", alice}}, app: preface + alice, back: "settings", appSays: []answer{{after: "SM\r\n\r\n", send: "settings"}}},
		"text without HTTP":                {send: "PING\r\n", then: []clientStep{{"+PONG\r\n", alice}}, app: "PING\r\n" + alice, back: "+PONG\r\n", appSays: []answer{{after: "\r\n", send: "+PONG\r\n"}}},
		"text without HTTP, whole port":    inPort(row{send: "PING\r\n", then: []clientStep{{"+PONG\r\n", get}}, client: "PING\r\n" + get, back: "+PONG\r\n", clientSays: []answer{{after: "\r\n", send: "+PONG\r\n"}}}),
		"binary, whole port":               inPort(row{send: "\x00\x00\x00\x08\x04\xd2\x16\x2f", client: "\x00\x00\x00\x08\x04\xd2\x16\x2f", back: "N", clientSays: []answer{{after: "\x2f", send: "N"}}}),
		"word without a line, whole port":  inPort(row{send: "HELLO", client: "HELLO", back: "HI", clientSays: []answer{{after: "HELLO", send: "HI"}}}),
		"the app speaks first":             {then: []clientStep{{"ready\r\n", "QUIT\r\n"}}, app: "QUIT\r\n", back: "220 ready\r\n221 bye\r\n", appSays: greeting},
		"the app speaks first, then alice": {then: []clientStep{{"ready\r\n", alice}}, app: alice, back: "220 ready\r\n", appSays: greeting},
		"the client speaks first":          inPort(row{then: []clientStep{{"ready\r\n", "QUIT\r\n"}}, client: "QUIT\r\n", back: "220 ready\r\n221 bye\r\n", clientSays: greeting}),
		"no client is connected":           {routes: []tunnel.TableRoute{dead(whole("a"))}, then: []clientStep{{"ready\r\n", "QUIT\r\n"}}, app: "QUIT\r\n", back: "220 ready\r\n221 bye\r\n", appSays: greeting},
	}
}
