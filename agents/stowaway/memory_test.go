package stowaway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// roleVariable makes the test binary a Stowaway of its own, so that its memory is measured alone.
const roleVariable = "SONDE_TEST_STOWAWAY"

func TestMain(m *testing.M) {
	key := os.Getenv(roleVariable)
	if key == "" {
		os.Exit(m.Run())
	}
	if err := beStowaway(tunnel.PublicKey(key)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// memoryLimit of Stowaway's container in bytes.
const memoryLimit = 256 << 20

// beStowaway reads its identity from standard input, and prints the addresses of its ports.
func beStowaway(manager tunnel.PublicKey) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	id, err := tunnel.ParseIdentity(text)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	listen := func(context.Context) (net.Listener, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			fmt.Println(l.Addr())
		}
		return l, err
	}
	return Run(ctx, &Config{
		Identity: id, ManagerKey: manager, ListenClients: listen, ListenPeers: listen,
		Confined: func() error { return nil }, Restrict: func() (restriction.InForce, error) { return restriction.InForce{}, nil },
		Log: slog.New(slog.DiscardHandler),
	})
}

// newProcess is newWorld with a Stowaway in a process of its own. peak returns its largest memory in bytes.
func newProcess(t *testing.T) (w *world, peak func() int) {
	t.Helper()
	w = &world{t: t, identity: identity(t), managerID: identity(t)}
	text, err := w.identity.MarshalPEM()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+string(w.managerID.Key), fmt.Sprintf("GOMEMLIMIT=%d", memoryLimit*3/4)) // as the Deployment has it
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the Stowaway: %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	for _, to := range []*string{&w.clients, &w.peers} {
		if !lines.Scan() {
			t.Fatal("the Stowaway prints no address")
		}
		*to = lines.Text()
	}
	w.manager = w.mustPeer(w.managerID)
	return w, func() int {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		kib, err := strconv.Atoi(string(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(b)[1]))
		if err != nil {
			t.Fatal(err)
		}
		return kib << 10
	}
}

// TestMemory checks the memory of 50 clients: each has 16 streams that are in use and stay open, and one that is never read.
func TestMemory(t *testing.T) {
	const clients, streams, size = 50, 16, 64 << 10
	w, peak := newProcess(t)
	carrier := identity(t)
	var routes []tunnel.Route
	var keys []*tunnel.Identity
	for i := range clients {
		keys = append(keys, identity(t))
		routes = append(routes, tunnel.Route{ID: fmt.Sprintf("r%d", i), ClientKey: keys[i].Key, Port: 80, Pods: []string{"p"}})
	}
	w.set([]tunnel.Carrier{{Pod: "p", Name: "shop/web", Key: carrier.Key}}, routes...)
	for i, key := range keys {
		w.connect(key, fmt.Sprint(i))
	}
	p := w.mustPeer(carrier)
	eventually(t, 20*time.Second, "all clients are connected", func() bool {
		for _, r := range w.status().Routes {
			if !r.Connected {
				return false
			}
		}
		return true
	})
	data := bytes.Repeat([]byte("x"), size)
	var running sync.WaitGroup
	release := make(chan struct{})
	var moved sync.WaitGroup
	for i := range clients {
		for range streams {
			moved.Add(1)
			running.Go(func() {
				s, err := p.Open(t.Context(), fmt.Sprintf("%sr%d", tunnel.PathOpen, i), nil)
				if err != nil {
					t.Error(err)
					moved.Done()
					return
				}
				defer s.Close()
				go func() { _, _ = s.Write(data) }()
				if _, err := io.CopyN(io.Discard, s, size); err != nil {
					t.Error(err)
				}
				moved.Done()
				<-release
			})
		}
		s, err := p.Open(t.Context(), fmt.Sprintf("%sr%d", tunnel.PathOpen, i), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		go func() { // what comes back is not read
			for {
				if _, err := s.Write(data); err != nil {
					return
				}
			}
		}()
	}
	moved.Wait()
	time.Sleep(2 * stalledAfter) // streams that are not read fill up, and those above the limit end
	t.Logf("%d clients with %d streams each: %d MiB at most", clients, streams+1, peak()>>20)
	if got := peak(); got > memoryLimit {
		t.Errorf("%d MiB, want %d at most", got>>20, memoryLimit>>20)
	}
	close(release)
	running.Wait()
}

// TestStreamsThatAreNotRead checks that they neither stop others nor become too many.
func TestStreamsThatAreNotRead(t *testing.T) {
	w := newShop(t)
	w.connect(w.alice, "alice")
	p := w.mustPeer(w.one)
	watch(t, p).await(t, 5*time.Second, "a")
	const unread = maxStalled + 8
	var ended sync.WaitGroup
	cut := make(chan struct{}, unread)
	data := strings.Repeat("x", 64<<10)
	for range unread {
		s, err := p.Open(t.Context(), tunnel.PathOpen+"a", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ended.Go(func() {
			for {
				if _, err := io.WriteString(s, data); err != nil {
					cut <- struct{}{}
					return
				}
			}
		})
	}
	for end := time.Now().Add(20 * time.Second); len(cut) < 8 && time.Now().Before(end); {
		if got, err := say(t, p, "a", "still here"); err != nil || !strings.HasSuffix(got, "still here") {
			t.Fatalf("another stream reads %q, %v", got, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := len(cut); n < 8 || n == unread {
		t.Errorf("%d streams of %d were ended, want those above %d", n, unread, maxStalled)
	}
	p.Close()
	ended.Wait()
}

func TestConfinement(t *testing.T) {
	good := confinement{noNewPrivs: true, seccomp: true}
	for name, tc := range map[string]struct {
		change func(*confinement)
		want   string
	}{
		"confined":     {change: func(*confinement) {}},
		"root":         {change: func(c *confinement) { c.root = true }, want: "runAsNonRoot"},
		"capabilities": {change: func(c *confinement) { c.capabilities = 1 << 21 }, want: "0x200000 (drop ALL)"},
		"privileges":   {change: func(c *confinement) { c.noNewPrivs = false }, want: "allowPrivilegeEscalation"},
		"seccomp":      {change: func(c *confinement) { c.seccomp = false }, want: "seccompProfile"},
		"token":        {change: func(c *confinement) { c.token = true }, want: "automountServiceAccountToken"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			tc.change(&c)
			err := c.check()
			if (err != nil) != (tc.want != "") || !strings.Contains(fmt.Sprint(err), tc.want) {
				t.Errorf("error %v, want one about %q", err, tc.want)
			}
		})
	}
	if os.Getuid() == 0 {
		if err := CheckConfinement(); err == nil || !strings.Contains(err.Error(), "runs as root") {
			t.Errorf("as root: %v", err)
		}
	}
}

// FuzzState checks that no State is accepted whose routes a path cannot name.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":1,"generation":"x","routes":[{"id":"r","clientKey":"k","port":1,"pods":["p"]}],"carriers":[{"pod":"p","key":"c"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := http.NewRequest(http.MethodPut, tunnel.PathState, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(&Config{Log: slog.New(slog.DiscardHandler), ManagerKey: "m"})
		answer := &recorder{header: http.Header{}}
		s.putState(answer, r)
		if (answer.status == http.StatusNoContent) != (s.index.generation != "") {
			t.Errorf("status %d, generation %q", answer.status, s.index.generation)
		}
		for id := range s.index.routes {
			if strings.ContainsAny(id, "/%?# ") {
				t.Errorf("route %q", id)
			}
		}
	})
}

// FuzzReports checks that a carrier's reports never say anything about other Pods.
func FuzzReports(f *testing.F) {
	f.Add([]byte(`{"pod":"p","routes":{"a":{},"b":{}},"requests":[{"route":"b","path":"/"}],"steered":[1]}` + "\n"))
	f.Add([]byte("[]\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newServer(&Config{Log: slog.New(slog.DiscardHandler), ManagerKey: "m"})
		i, err := newIndex(&tunnel.State{
			Version: tunnel.Version, Generation: "x", Carriers: []tunnel.Carrier{{Pod: "p", Key: "k"}},
			Routes: []tunnel.Route{{ID: "a", ClientKey: "a", Port: 1, Pods: []string{"p"}}, {ID: "b", ClientKey: "b", Port: 1, Pods: []string{"q"}}},
		}, "m")
		if err != nil {
			t.Fatal(err)
		}
		s.apply(i)
		other := &session{id: "b", streams: map[*stream]struct{}{}}
		s.sessions["b"] = other
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // one line only
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, tunnel.PathReport, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		s.readReports(&recorder{header: http.Header{}}, r, s.carriers["p"])
		if _, ok := s.carriers["p"].counters["b"]; ok || len(other.pending) > 0 {
			t.Errorf("counters %v, requests %v", s.carriers["p"].counters, other.pending)
		}
	})
}

// recorder keeps the status of an answer.
type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }
