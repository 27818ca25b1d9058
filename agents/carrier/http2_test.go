package carrier

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// streamConn makes a stream a net.Conn for servers.
type streamConn struct{ duplex }

func (streamConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (streamConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (streamConn) SetDeadline(time.Time) error      { return nil }
func (streamConn) SetReadDeadline(time.Time) error  { return nil }
func (streamConn) SetWriteDeadline(time.Time) error { return nil }

// TestGRPC checks that the kubelet's gRPC probes reach the app, and other calls the client. gRPC's client waits for the server's
// settings before its first request.
func TestGRPC(t *testing.T) {
	grpcServer := func(status grpc_health_v1.HealthCheckResponse_ServingStatus) func(net.Conn) {
		h := health.NewServer()
		h.SetServingStatus("", status)
		s := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(s, h)
		l := &connListener{conns: make(chan net.Conn), done: make(chan struct{})}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		return func(c net.Conn) {
			gone := make(chan struct{})
			l.conns <- &notifying{Conn: c, gone: gone}
			<-gone
		}
	}
	app, client := grpcServer(grpc_health_v1.HealthCheckResponse_SERVING), grpcServer(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	behind := whole("b")
	behind.Created = behind.Created.Add(time.Second)
	f := start(t, func(d duplex) { app(d.(net.Conn)) }, func(_ string, s duplex) { client(streamConn{s}) }, whole("a"), behind)
	for agent, want := range map[string]grpc_health_v1.HealthCheckResponse_ServingStatus{
		"kube-probe/1.35": grpc_health_v1.HealthCheckResponse_SERVING,
		"orders":          grpc_health_v1.HealthCheckResponse_NOT_SERVING,
	} {
		t.Run(agent, func(t *testing.T) {
			conn, err := grpc.NewClient(f.pod.listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent(agent))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for range 5 {
				r, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
				if err != nil || r.Status != want {
					t.Fatalf("status %v, %v; want %v", r.GetStatus(), err, want)
				}
			}
		})
	}
	if n := f.newReport().Routes["b"].Overlaps; n != 1 {
		t.Errorf("%d connections count as overlaps, want 1: the caller's, and none for the probe", n)
	}
}

type connListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *connListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *connListener) Close() error {
	close(l.done)
	return nil
}
func (l *connListener) Addr() net.Addr { return &net.TCPAddr{} }

// notifying closes gone when the connection is closed.
type notifying struct {
	net.Conn
	gone chan struct{}

	mu     sync.Mutex
	closed bool
}

// Write fails after Close: servers flush then, when the handler of a stream may have returned.
func (n *notifying) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return 0, net.ErrClosed
	}
	return n.Conn.Write(b)
}

func (n *notifying) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	close(n.gone)
	return n.Conn.Close()
}

// TestHTTP2 checks that a client that sends its request at once is relayed without settings of the carrier.
func TestHTTP2(t *testing.T) {
	var atApp, atClient atomic.Int32
	serve := func(c net.Conn, n *atomic.Int32) {
		serveHandler(c, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			n.Add(1)
		})
	}
	f := start(t, func(d duplex) { serve(d.(net.Conn), &atApp) }, func(_ string, s duplex) { serve(&notifying{Conn: streamConn{s}, gone: make(chan struct{})}, &atClient) }, whole("a"))
	for _, agent := range []string{"kube-probe/1.35", "curl"} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		for range 3 {
			r, err := http.NewRequest(http.MethodPost, "http://"+f.pod.listener.Addr().String(), bytes.NewReader(make([]byte, 200_000)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("User-Agent", agent)
			response, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(agent, err)
			}
			_ = response.Body.Close()
		}
		transport.CloseIdleConnections()
	}
	if atApp.Load() != 3 || atClient.Load() != 3 {
		t.Errorf("%d requests at the app, %d at the client; want 3 each", atApp.Load(), atClient.Load())
	}
}

// TestSlowHTTP2: a client sends its first request late, and more of it than the carrier holds before it acknowledges the carrier's settings.
func TestSlowHTTP2(t *testing.T) {
	received := make(chan []byte, 1)
	f := start(t, nil, func(_ string, s duplex) {
		b, _ := io.ReadAll(s)
		received <- b
	}, whole("a"))
	c := f.dial(t)
	var want bytes.Buffer
	framer := http2.NewFramer(&want, nil)
	want.WriteString(http2.ClientPreface)
	_ = framer.WriteSettings()
	_, _ = c.Write(want.Bytes())
	settings := make([]byte, len(emptySettings))
	if _, err := io.ReadFull(c, settings); err != nil {
		t.Fatal(err)
	}
	before := want.Len()
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: []byte{0x83, 0x86, 0x84}})
	for range 20 {
		_ = framer.WriteData(1, false, bytes.Repeat(settingsAck, 1000)) // what a frame holds is not taken for one
	}
	_, _ = c.Write(want.Bytes()[before:])
	_, _ = c.Write(settingsAck)
	_, _ = c.Write(settingsAck) // it answers the server
	want.Write(settingsAck)
	_ = c.CloseWrite()
	select {
	case got := <-received:
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("the client got %d bytes, want the peer's %d without the first acknowledgement", len(got), want.Len())
		}
	case <-time.After(patience):
		t.Error("the client got no end")
	}
}

// TestResetBeforeAck: a client that resets its connection has not ended regularly, also before it acknowledges the carrier's settings.
func TestResetBeforeAck(t *testing.T) {
	started, ended := make(chan struct{}), make(chan error, 1)
	f := start(t, nil, func(_ string, s duplex) {
		_, _ = io.ReadFull(s, make([]byte, len(http2.ClientPreface)))
		close(started)
		_, err := io.Copy(io.Discard, s)
		ended <- err
	}, whole("a"))
	c := f.dial(t)
	framer := http2.NewFramer(c, nil)
	_, _ = io.WriteString(c, http2.ClientPreface)
	if _, err := io.ReadFull(c, make([]byte, len(emptySettings))); err != nil {
		t.Fatal(err)
	}
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: []byte{0x83, 0x86, 0x84}})
	<-started
	_ = c.SetLinger(0)
	_ = c.Close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the client got a regular end")
		}
	case <-time.After(patience):
		t.Error("the client got no end")
	}
}

func TestFindAck(t *testing.T) {
	preface := http2.ClientPreface
	settings, ack := string(emptySettings), string(settingsAck)
	window := "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x01"
	for name, tc := range map[string]struct {
		text  string
		want  int
		found bool
	}{
		"none":               {preface + settings, len(preface + settings), false},
		"at once":            {preface + ack, len(preface), true},
		"after others":       {preface + settings + window + ack, len(preface + settings + window), true},
		"incomplete":         {preface + settings + ack[:8], len(preface + settings), false},
		"inside of a frame":  {preface + "\x00\x00\x09\x00\x00\x00\x00\x00\x01" + ack, len(preface) + 18, false},
		"beyond the bytes":   {preface + "\xff\xff\xff\x00\x00\x00\x00\x00\x01" + ack, len(preface) + 9 + 1<<24 - 1, false},
		"less than preface":  {preface[:10], len(preface), false},
		"settings with ack2": {preface + settings + ack + ack, len(preface + settings), true},
	} {
		t.Run(name, func(t *testing.T) {
			if at, found := findAck([]byte(tc.text), len(preface)); at != tc.want || found != tc.found {
				t.Errorf("at %d, %v; want %d, %v", at, found, tc.want, tc.found)
			}
		})
	}
}

func FuzzFirstAgent(f *testing.F) {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&b, nil)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: []byte{0x83, 0x86, 0x84, 0x7a, 4, 'c', 'u', 'r', 'l'}})
	f.Add(b.Bytes())
	f.Add([]byte(http2.ClientPreface))
	f.Fuzz(func(_ *testing.T, b []byte) {
		firstAgent(b)
		findAck(b, len(http2.ClientPreface))
	})
}
