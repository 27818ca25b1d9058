package intercept

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

const path = "/base/api/v1/namespaces/sonde-system/services/http:sonde-stowaway:client/proxy/v1/client"

func newIdentity(t *testing.T) *tunnel.Identity {
	t.Helper()
	i, err := tunnel.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// apiServer answers the upgrade as an API server with TLS and HTTP/2 does, with a Stowaway behind it that keeps the last session.
func apiServer(t *testing.T, stowaway *tunnel.Identity, client tunnel.PublicKey, peers chan<- *tunnel.Peer) *rest.Config {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path || r.Header.Get("Authorization") != "Bearer secret" || r.ProtoMajor != 1 || r.Header.Get("Upgrade") != tunnel.Protocol {
			t.Errorf("%s %s %s, upgrade %q", r.Proto, r.Method, r.URL, r.Header.Get("Upgrade"))
		}
		raw, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(raw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: sonde-tunnel\r\n\r\n")
		if buffered.Reader.Buffered() > 0 {
			t.Error("the client sends before the upgrade")
		}
		conn := tls.Server(raw, stowaway.ServerTLS(func(k tunnel.PublicKey) bool { return k == client }))
		if tunnel.Handshake(context.Background(), conn) != nil {
			return
		}
		peer, err := tunnel.NewPeer(conn, tunnel.Far)
		if err != nil {
			t.Error(err)
			return
		}
		peers <- peer
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return &rest.Config{
		Host: s.URL + "/base", BearerToken: "secret", Timeout: time.Minute,
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})},
	}
}

func TestTunnel(t *testing.T) {
	stowaway, client := newIdentity(t), newIdentity(t)
	peers := make(chan *tunnel.Peer, 1)
	dialer, err := NewDialer(apiServer(t, stowaway, client.Key, peers), "sonde-system")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dialer.Dial(t.Context(), client, newIdentity(t).Key); err == nil {
		t.Error("a Stowaway with another key is accepted")
	}
	process, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	go func() {
		for {
			conn, err := process.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "laptop") // and ends before it has read anything
			_ = conn.(*net.TCPConn).CloseWrite()
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
	}()
	reports, changes := make(chan tunnel.Report, 1), make(chan error, 8)
	local := &Local{Route: "mine", Address: process.Addr().String(), OnReport: func(r tunnel.Report) { reports <- r }, OnDial: func(error) {}, TrafficOf: func(string) *Traffic { return &Traffic{} }}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	tun := &Tunnel{
		Key: func() tunnel.PublicKey { return stowaway.Key }, Handler: local.Handler(), OnChange: func(err error) { changes <- err },
		Dial: func(ctx context.Context, key tunnel.PublicKey) (net.Conn, error) {
			return dialer.Dial(ctx, client, key)
		},
	}
	go func() { ran <- tun.Run(ctx) }()
	for again := range 2 {
		peer := <-peers
		if err := <-changes; err != nil {
			t.Errorf("connection %d: %v", again, err)
		}
		stream, err := peer.Open(t.Context(), tunnel.PathOpen+"mine", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.CloseWrite()
		if b, err := io.ReadAll(stream); string(b) != "laptop" || err != nil {
			t.Errorf("connection %d: read %q, %v", again, b, err)
		}
		if _, err := peer.Open(t.Context(), tunnel.PathOpen+"other", nil); !strings.Contains(fmt.Sprint(err), "404") {
			t.Errorf("a stream of another route: %v", err)
		}
		r, err := tunnel.NewRequest(t.Context(), http.MethodPost, tunnel.PathReport, strings.NewReader(`{"pod":"p"}`+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if response, err := peer.Do(r); err != nil {
			t.Error(err)
		} else {
			_ = response.Body.Close()
		}
		if got := <-reports; got.Pod != "p" {
			t.Errorf("report %+v", got)
		}
		time.Sleep(settled) // a connection that ends earlier was not good
		peer.Close()
		if err := <-changes; !errors.Is(err, errLost) {
			t.Errorf("after a lost connection: %v", err)
		}
	}
	cancel()
	if err := <-ran; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRefusedUpgrades(t *testing.T) {
	for name, tc := range map[string]struct {
		code       int
		body       string
		want       string
		wantDenied bool
	}{
		"no right":   {code: 403, body: `{"kind":"Status","message":"User cannot get services/proxy"}`, want: "User cannot get services/proxy\n", wantDenied: true},
		"no Service": {code: 404, body: `{"kind":"Status","message":"services not found"}`, want: "check Deployment sonde-stowaway"},
		"not ready":  {code: 503, body: `{"kind":"Status","message":"no endpoints"}`, want: "no endpoints: the cluster's end of the tunnel is not ready"},
		"a proxy":    {code: 407, body: "<html>", want: "the tunnel is refused with status 407: <html>"},
		"no upgrade": {code: 200, body: "ok", want: "status 200"},
		"no text":    {code: 500, want: "500 Internal Server Error"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.code)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer s.Close()
			d, err := NewDialer(&rest.Config{Host: s.URL}, "sonde-system")
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.Dial(t.Context(), newIdentity(t), "key")
			refused, ok := errors.AsType[*ProxyError](err)
			if !ok || refused.Denied() != tc.wantDenied || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestRedirectedUpgrade: the user's credentials go nowhere else. An API server passes no redirect of Stowaway on, but other proxies do.
func TestRedirectedUpgrade(t *testing.T) {
	asked := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") }))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	d, err := NewDialer(&rest.Config{Host: s.URL, BearerToken: "secret"}, "sonde-system")
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Dial(t.Context(), newIdentity(t), "key")
	if refused, ok := errors.AsType[*ProxyError](err); !ok || refused.Code != http.StatusTemporaryRedirect {
		t.Errorf("error %v", err)
	}
	select {
	case got := <-asked:
		t.Errorf("another server is asked, with %q", got)
	default:
	}
}

// TestTemporaryRefusal: a tunnel goes on after a refusal of the API server, unless it is refused again and again.
func TestTemporaryRefusal(t *testing.T) {
	lost, refused := errors.New("no network"), &ProxyError{Code: http.StatusUnauthorized, Message: "the token has expired"}
	for name, tc := range map[string]struct {
		answers []error
		want    error
	}{
		"once":         {[]error{refused}, nil},
		"now and then": {[]error{refused, refused, lost, refused, refused}, nil},
		"each time":    {[]error{lost, refused, refused, refused}, refused},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				dials := 0
				tun := &Tunnel{
					Key: func() tunnel.PublicKey { return "" }, OnChange: func(error) {},
					Dial: func(context.Context, tunnel.PublicKey) (net.Conn, error) {
						if dials == len(tc.answers) {
							cancel()
							return nil, ctx.Err()
						}
						dials++
						return nil, tc.answers[dials-1]
					},
				}
				if err := tun.Run(ctx); !errors.Is(err, tc.want) || dials != len(tc.answers) {
					t.Errorf("after %d dials of %d: %v, want %v", dials, len(tc.answers), err, tc.want)
				}
				cancel()
			})
		})
	}
}
