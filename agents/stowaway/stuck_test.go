package stowaway

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// newServerWorld is newWorld with a server whose state the test can see.
func newServerWorld(t *testing.T) (*world, *server) {
	t.Helper()
	w := &world{t: t, identity: identity(t), managerID: identity(t)}
	s := newServer(&Config{Identity: w.identity, ManagerKey: w.managerID.Key, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	for to, serve := range map[*string]func(context.Context, net.Listener) error{&w.clients: s.serveClients, &w.peers: s.servePeers} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		*to = l.Addr().String()
		serving.Go(func() { _ = serve(ctx, l) })
	}
	w.manager = w.mustPeer(w.managerID)
	return w, s
}

// send connects a client that writes size bytes into each stream at once, and then keeps the stream. The channel is closed when its
// connection has ended.
func (w *world) send(i *tunnel.Identity, size int) (gone <-chan struct{}) {
	w.t.Helper()
	_, gone = w.sendUntil(i, size)
	return gone
}

// sendUntil is send, and returns the connection, too.
func (w *world) sendUntil(i *tunnel.Identity, size int) (conn net.Conn, gone <-chan struct{}) {
	w.t.Helper()
	conn, err := w.session(i)
	if err != nil {
		w.t.Fatal(err)
	}
	data := bytes.Repeat([]byte("x"), 256<<10)
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+tunnel.PathOpen+"{id}", func(rw http.ResponseWriter, r *http.Request) {
		s, err := tunnel.Accept(rw, r)
		for n := 0; n < size && err == nil; n += len(data) {
			_, err = s.Write(data)
		}
		<-r.Context().Done()
	})
	mux.HandleFunc("POST "+tunnel.PathReport, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	served := make(chan struct{})
	go func() {
		defer close(served)
		tunnel.Serve(context.Background(), conn, mux, tunnel.Far)
	}()
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn, served
}

// heldBy returns what relieve takes for held by the streams of a namespace, and their number, a second from now.
func (s *server) heldBy(namespace string) (held, streams int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(time.Now().Add(time.Second), true).held[namespace], s.opened[namespace]
}

// valve is a connection that reads nothing more once it is shut.
type valve struct {
	net.Conn
	shut  atomic.Bool
	ended <-chan struct{}
}

// Read implements net.Conn.
func (v *valve) Read(b []byte) (int, error) {
	if v.shut.Load() {
		<-v.ended
		return 0, net.ErrClosed
	}
	return v.Conn.Read(b[:min(len(b), 4<<10)])
}

// takeOne is a client's machine that takes one stream at a time, and never answers it.
func takeOne(conn net.Conn) {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(conn, conn)
	for err := f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}); err == nil; {
		var got http2.Frame
		if got, err = f.ReadFrame(); err != nil {
			return
		}
		switch got := got.(type) {
		case *http2.SettingsFrame:
			if !got.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !got.IsAck() {
				err = f.WritePing(true, got.Data)
			}
		}
	}
}

// TestStreamBeforeItsFirstRead: what a carrier sends counts also while the client takes no further stream.
func TestStreamBeforeItsFirstRead(t *testing.T) {
	const streams = 20
	w, s := newServerWorld(t)
	client, carrier := identity(t), identity(t)
	w.set([]tunnel.Carrier{{Pod: "p", Name: "shop/web", Key: carrier.Key}},
		tunnel.Route{ID: "a", Name: "shop/a", ClientKey: client.Key, Port: 80, Pods: []string{"p"}})
	conn, err := w.session(client)
	if err != nil {
		t.Fatal(err)
	}
	go takeOne(conn)
	p := w.mustPeer(carrier)
	watch(t, p).await(t, 5*time.Second, "a")
	data := bytes.Repeat([]byte("x"), int(tunnel.Near))
	for range streams + 1 {
		body, in := io.Pipe()
		r, err := tunnel.NewRequest(t.Context(), http.MethodPost, tunnel.PathOpen+"a", body)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = in.Write(data) }()
		go func() {
			if response, err := p.Do(r); err == nil {
				_ = response.Body.Close()
			}
		}()
	}
	want, held := streams*int(tunnel.Near), 0
	for end := time.Now().Add(5 * time.Second); held < want && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		held, _ = s.heldBy("shop")
	}
	if held < want {
		t.Errorf("%d KiB count, want %d at least", held>>10, want>>10)
	}
}

// TestStreamEndsWithoutItsClient: a stream ends at once, also if its client's connection takes no bytes.
func TestStreamEndsWithoutItsClient(t *testing.T) {
	w, s := newServerWorld(t)
	client, carrier := identity(t), identity(t)
	w.set([]tunnel.Carrier{{Pod: "p", Name: "shop/web", Key: carrier.Key}},
		tunnel.Route{ID: "a", Name: "shop/a", ClientKey: client.Key, Port: 80, Pods: []string{"p"}})
	secure, err := w.session(client)
	if err != nil {
		t.Fatal(err)
	}
	conn := &valve{Conn: secure, ended: t.Context().Done()}
	data := bytes.Repeat([]byte("x"), 64<<10)
	go tunnel.Serve(t.Context(), conn, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if accepted, err := tunnel.Accept(rw, r); err == nil {
			_, _ = accepted.Write(data)
		}
		<-r.Context().Done()
	}), 1<<30)
	p := w.mustPeer(carrier)
	watch(t, p).await(t, 5*time.Second, "a")
	st, err := p.Open(t.Context(), tunnel.PathOpen+"a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(st, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	conn.shut.Store(true)
	var moved int
	moving := make(chan int)
	go func() {
		defer close(moving)
		for {
			n, err := st.Write(data)
			if err != nil {
				return
			}
			moving <- n
		}
	}()
	for full := false; !full; {
		select {
		case n := <-moving:
			moved += n
		case <-time.After(300 * time.Millisecond):
			full = true
		}
	}
	t.Logf("the client's connection is full after %d KiB", moved>>10)
	began := time.Now()
	_ = st.Close()
	for ; ; time.Sleep(5 * time.Millisecond) {
		if _, n := s.heldBy("shop"); n == 0 || time.Since(began) > 20*time.Second {
			break
		}
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the stream has ended after %s, with its client's connection", took)
	}
	<-moving
}

// TestEndedStreamsOfAClientThatTakesNothing: streams that have ended count for their namespace until their client's connection has taken their
// ends. HTTP/2's client holds what their carrier sent last.
func TestEndedStreamsOfAClientThatTakesNothing(t *testing.T) {
	const streams = 20
	w, s := newServerWorld(t)
	client, carrier := identity(t), identity(t)
	w.set([]tunnel.Carrier{{Pod: "p", Name: "shop/web", Key: carrier.Key}},
		tunnel.Route{ID: "a", Name: "shop/a", ClientKey: client.Key, Port: 80, Pods: []string{"p"}})
	secure, err := w.session(client)
	if err != nil {
		t.Fatal(err)
	}
	conn := &valve{Conn: secure, ended: t.Context().Done()}
	go tunnel.Serve(t.Context(), conn, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = tunnel.Accept(rw, r)
		<-r.Context().Done()
	}), 1<<30)
	p := w.mustPeer(carrier)
	watch(t, p).await(t, 5*time.Second, "a")
	share := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.shares(map[string]int{})["shop"]
	}
	before := share()
	var moved atomic.Int64
	var open []*tunnel.Stream
	for range streams {
		st, err := p.Open(t.Context(), tunnel.PathOpen+"a", nil)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, st)
	}
	conn.shut.Store(true)
	data := bytes.Repeat([]byte("x"), 64<<10)
	for _, st := range open {
		go func() {
			for err := error(nil); err == nil; moved.Add(1) {
				_, err = st.Write(data)
			}
		}()
	}
	for last := int64(-1); last != moved.Load(); time.Sleep(300 * time.Millisecond) {
		last = moved.Load()
	}
	for _, st := range open {
		go st.Close()
	}
	eventually(t, 2*time.Second, "the streams have ended, and count", func() bool { // HTTP/2 gives the connection up after four seconds
		_, n := s.heldBy("shop")
		return n == 0 && share()-before >= (streams-1)*streamHolds
	})
	_ = secure.Close()
	eventually(t, 10*time.Second, "nothing counts after the client's connection", func() bool { return share() <= before })
}

// TestEndedStreamsOfAClientThatReads: streams count no longer when they have ended, and their clients and carriers take all bytes.
func TestEndedStreamsOfAClientThatReads(t *testing.T) {
	w, s := newServerWorld(t)
	client, carrier := identity(t), identity(t)
	w.set([]tunnel.Carrier{{Pod: "p", Name: "shop/web", Key: carrier.Key}},
		tunnel.Route{ID: "a", Name: "shop/a", ClientKey: client.Key, Port: 80, Pods: []string{"p"}})
	w.connect(client, "a")
	p := w.mustPeer(carrier)
	watch(t, p).await(t, 5*time.Second, "a")
	for n := range 50 {
		st, err := p.Open(t.Context(), tunnel.PathOpen+"a", nil)
		if err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 { // the others are reset
			_ = st.CloseWrite()
			_, _ = io.Copy(io.Discard, st)
		}
		_ = st.Close()
		_ = p.Ping(t.Context())
		if status, text := do(t, p, http.MethodPost, "/nothing", nil); status != http.StatusNotFound {
			t.Fatalf("a request that carriers do not have: %d %s", status, text)
		}
	}
	eventually(t, 5*time.Second, "nothing counts any more", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.sessions["a"].ending == 0 && s.carriers["p"].connections.open[0].requests.Load() == 1 // its Tables
	})
}
