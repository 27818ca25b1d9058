package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/handover"
	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/privileged"
)

// carrierPatience is how long a condition may take.
const carrierPatience = 10 * time.Second

// hostPod is an opener's Pod whose app listens on the host's loopback.
type hostPod struct {
	app     string
	mu      sync.Mutex
	steered []bool
}

func (p *hostPod) Answering(bool) error { return nil }

func (p *hostPod) Steer(_ uint16, on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steered = append(p.steered, on)
	return nil
}

func (p *hostPod) Listens(uint16) (bool, error) { return true, nil }

func (p *hostPod) Dial(ctx context.Context, _ netip.AddrPort, _ uint32) (*os.File, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.app)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.(*net.TCPConn).File()
}

// TestConfinedCarrier runs a carrier as its container does: without rights, with sockets from an opener and a session with a
// Stowaway. After SIGTERM it ends steering, and exits with 0.
func TestConfinedCarrier(t *testing.T) {
	privileged.Need(t)
	app := listenTCP(t)
	go answerAll(app, "app")
	intercepted, pod := listenTCP(t), &hostPod{app: app.Addr().String()}
	port := uint16(intercepted.Addr().(*net.TCPAddr).Port)
	own, stowaway := newIdentity(t), newIdentity(t)
	peers := listenTCP(t)
	go serveCarrier(t.Context(), peers, stowaway, own.Key, port)

	// The carrier's user must reach the folders.
	dir, err := os.MkdirTemp("", "carrier") //nolint:usetesting // other users may not enter the folder of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	identity, socket := filepath.Join(dir, "identity.pem"), filepath.Join(dir, "socket")
	text, err := own.MarshalPEM()
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.Chmod(dir, 0o755), os.WriteFile(identity, text, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	opener := make(chan error, 1)
	server, err := handover.Listen(socket, captureconfig.FirstKeeperUser)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() { opener <- open(t.Context(), server, pod, intercepted) }()

	var stderr bytes.Buffer
	address := strings.Replace(peers.Addr().String(), "127.0.0.1", "localhost", 1)
	cmd := exec.Command("/proc/self/exe", dir, dir, buildAgent(t), "carrier", "--socket", socket, "--stowaway", address,
		"--stowaway-key", string(stowaway.Key), "--identity", identity, "--identity-key", string(own.Key), "--pod-uid", "uid", "--pod", "shop/web-0")
	cmd.Env = append(os.Environ(), roleVariable+"="+roleKeeper)
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ask := func(user string) string {
		r, err := http.NewRequest(http.MethodGet, "http://"+intercepted.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-User", user)
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: carrierPatience}).Do(r)
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		b, _ := io.ReadAll(response.Body)
		return string(b)
	}
	deadline := time.Now().Add(carrierPatience)
	for ask("alice") != "client" && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if alice, bob := ask("alice"), ask("bob"); alice != "client" || bob != "app" {
		t.Errorf("%q and %q answered", alice, bob)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the carrier ended with %v: %s", err, stderr.String())
	}
	if err := <-opener; err != nil {
		t.Logf("the opener ended with: %v", err)
	}
	pod.mu.Lock()
	defer pod.mu.Unlock()
	if len(pod.steered) != 2 || !pod.steered[0] || pod.steered[1] {
		t.Errorf("steering %v: %s", pod.steered, stderr.String())
	}
}

// open is an opener that gives one listener.
func open(ctx context.Context, server *handover.Server, pod handover.Pod, l net.Listener) error {
	session, err := server.Accept(ctx)
	if err != nil {
		return err
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	if err := session.HandOver(f); err != nil {
		return err
	}
	_, _ = f.Close(), l.Close()
	return session.Serve(ctx, pod)
}

// serveCarrier is a Stowaway with one route, whose client answers.
func serveCarrier(ctx context.Context, l net.Listener, own *tunnel.Identity, carrier tunnel.PublicKey, port uint16) {
	route := tunnel.TableRoute{ID: "route", Port: port, Live: true, GracePeriod: time.Minute, Match: matchOf("alice")}
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		secure := tls.Server(c, own.ServerTLS(func(k tunnel.PublicKey) bool { return k == carrier }))
		if tunnel.Handshake(ctx, secure) != nil {
			continue
		}
		go tunnel.Serve(ctx, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case tunnel.PathRoutes:
				_ = json.NewEncoder(w).Encode(&tunnel.Table{Version: tunnel.Version, Routes: []tunnel.TableRoute{route}})
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			case tunnel.PathReport:
				_, _ = io.Copy(io.Discard, r.Body)
			default:
				if s, err := tunnel.Accept(w, r); err == nil {
					answerOne(s, "client")
				}
			}
		}), tunnel.Near)
	}
}

func answerAll(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			answerOne(c.(*net.TCPConn), name)
		}()
	}
}

// answerOne answers one request.
func answerOne(c tunnel.Duplex, name string) {
	_, _ = c.Read(make([]byte, 4096))
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+name)
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
}

func matchOf(user string) *httpmatch.Match {
	return &httpmatch.Match{Headers: []httpmatch.Header{{Name: "X-User", Text: httpmatch.Text{Exact: &user}}}}
}

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newIdentity(t *testing.T) *tunnel.Identity {
	t.Helper()
	i, err := tunnel.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}
