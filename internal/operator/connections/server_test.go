package connections

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sonde-operator/sonde/internal/operator/certs"
	"github.com/sonde-operator/sonde/internal/wire/connlimit"
)

func TestServerServesWithTheCertificateOfTheMoment(t *testing.T) {
	c := certs.NewManager(fake.NewClientBuilder().Build(), "sonde-system", clock.RealClock{})
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	s := &Server{
		Address: "127.0.0.1:0", GetCertificate: c.GetCertificate, MaxConnections: 8,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				_ = http.NewResponseController(w).Flush()
				close(begun)
				<-r.Context().Done()
			}
			_, _ = io.WriteString(w, r.Proto)
		}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	addr := listening(t, s)

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CABundle())
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: "sonde-results.sonde-system.svc", MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}}
	get := func(path string) io.Reader {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.Body
	}
	if body, err := io.ReadAll(get("/")); err != nil || string(body) != "HTTP/1.1" {
		t.Errorf("got %q, %v; want HTTP/1.1", body, err)
	}

	get("/wait") // a stream must not keep the manager from ending
	<-begun
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the server does not end")
	}
	if s.NeedLeaderElection() {
		t.Error("a standby would serve no results")
	}
}

// listening waits until the server is ready and returns its address.
func listening(t *testing.T, s *Server) string {
	t.Helper()
	for s.Ready(nil) != nil {
		select {
		case <-t.Context().Done():
			t.Fatal("the server never listened")
		case <-time.After(time.Millisecond):
		}
	}
	return s.address.Load().String()
}

func TestServerSaysThatThePortIsTaken(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = (&Server{Name: "results", Flag: "--results-port", Address: l.Addr().String()}).Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--results-port") {
		t.Errorf("got %v", err)
	}
}

// TestServerBoundsConnections: a client that opens connections without a token keeps out no other, and not more of them
// are open than the bound says.
func TestServerBoundsConnections(t *testing.T) {
	c := certs.NewManager(fake.NewClientBuilder().Build(), "sonde-system", clock.RealClock{})
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &Server{
		Address: "127.0.0.1:0", GetCertificate: c.GetCertificate, MaxConnections: 2,
		Handler: http.NotFoundHandler(),
	}
	if err := s.Ready(nil); err == nil {
		t.Error("ready before it listens")
	}
	go func() { _ = s.Start(t.Context()) }()
	addr := listening(t, s)
	open := func(wait time.Duration) (*tls.Conn, error) {
		raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = raw.Close() })
		conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // nothing is sent
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		return conn, conn.HandshakeContext(ctx)
	}
	var held []*tls.Conn
	for range 5 {
		conn, err := open(10 * time.Second)
		if err != nil {
			t.Fatalf("connection %d is not served: %v", len(held)+1, err)
		}
		held = append(held, conn)
	}
	if err := s.Ready(nil); err != nil {
		t.Errorf("a client that holds all connections makes the manager unready: %v", err)
	}
	for _, conn := range held[:3] {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("an old connection is still open: %v", err)
		}
	}
}

// TestServerFinishesRequests: with a grace period a running request is answered before the server ends.
func TestServerFinishesRequests(t *testing.T) {
	c := certs.NewManager(fake.NewClientBuilder().Build(), "sonde-system", clock.RealClock{})
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun, leave := make(chan struct{}), make(chan struct{})
	s := &Server{
		Address: "127.0.0.1:0", GetCertificate: c.GetCertificate, MaxConnections: 8, Grace: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			<-leave
			if r.Context().Err() != nil {
				t.Error("the request was cancelled")
			}
			_, _ = io.WriteString(w, "admitted")
		}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+listening(t, s), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // as above
		resp, err := client.Do(req)
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		got <- string(b)
	}()
	<-begun
	cancel()
	close(leave)
	if text := <-got; text != "admitted" {
		t.Errorf("answer %q", text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestHealth: the kubelet gets through while another host holds all connections with headers that never end.
func TestHealth(t *testing.T) {
	s, err := Health(t.Context(), "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	if err != nil {
		t.Fatal(err)
	}
	if s.NeedLeaderElection() {
		t.Error("a standby would not be alive")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	to := s.Listener.Addr().String()
	dial := func(from string) net.Conn {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	const attacks = 10 * healthConnections
	var closed atomic.Int32
	for range attacks {
		conn := dial("127.0.0.2")
		go func() {
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\n"+shortHeaders(connlimit.HeaderBytes/2))
			_, _ = io.Copy(io.Discard, conn)
			closed.Add(1)
		}()
	}
	for range 20 {
		kubelet := dial("127.0.0.9")
		_, _ = io.WriteString(kubelet, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		if b, err := io.ReadAll(kubelet); err != nil || !strings.HasSuffix(string(b), "\r\n\r\nok") {
			t.Fatalf("got %q, %v", b, err)
		}
	}
	wait(t, "the bound", func() bool { return closed.Load() >= attacks-healthConnections })
	if _, err := Health(t.Context(), to, nil); err == nil || !strings.Contains(err.Error(), "--health-probe-bind-address") {
		t.Errorf("got %v for a port in use", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
