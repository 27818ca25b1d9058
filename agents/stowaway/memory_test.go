//go:build !race

// The race detector takes several times the memory. SHARD=intercept runs this test.

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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
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
		routes = append(routes, tunnel.Route{ID: fmt.Sprintf("r%d", i), Name: fmt.Sprintf("shop-%d/web", i), ClientKey: keys[i].Key, Port: 80, Pods: []string{"p"}})
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
	time.Sleep(4 * time.Second) // streams that are not read fill up
	t.Logf("%d clients with %d streams each: %d MiB at most", clients, streams+1, peak()>>20)
	if got := peak(); got > memoryLimit {
		t.Errorf("%d MiB, want %d at most", got>>20, memoryLimit>>20)
	}
	close(release)
	running.Wait()
}

// TestMemoryOfAttackers: streams whose readers take nothing, or a little at a time, do not take Stowaway past its memory. Meanwhile
// another namespace's stream works.
func TestMemoryOfAttackers(t *testing.T) {
	const streams, size = 400, 64 << 10 // 400 windows of 2 MiB are 800 MiB
	for name, attack := range map[string]func(*tunnel.Stream){
		"never read": func(*tunnel.Stream) {},
		"trickle": func(s *tunnel.Stream) {
			for b := make([]byte, 1<<10); ; time.Sleep(20 * time.Millisecond) {
				if _, err := io.ReadFull(s, b); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, peak := newProcess(t)
			good, bad, carrier, attacker := identity(t), identity(t), identity(t), identity(t)
			w.set([]tunnel.Carrier{{Pod: "p", Name: "shop/web", Key: carrier.Key}, {Pod: "q", Name: "flood/web", Key: attacker.Key}},
				tunnel.Route{ID: "good", Name: "shop/good", ClientKey: good.Key, Port: 80, Pods: []string{"p"}},
				tunnel.Route{ID: "bad", Name: "flood/bad", ClientKey: bad.Key, Port: 81, Pods: []string{"q"}})
			w.connect(good, "good")
			w.connect(bad, "bad")
			p, flood := w.mustPeer(carrier), w.mustPeer(attacker)
			watch(t, p).await(t, 20*time.Second, "good")
			watch(t, flood).await(t, 20*time.Second, "bad")
			data := bytes.Repeat([]byte("x"), size)
			var running sync.WaitGroup
			var refused, ended atomic.Int32
			for range streams {
				running.Go(func() {
					s, err := flood.Open(t.Context(), tunnel.PathOpen+"bad", nil)
					if err != nil {
						refused.Add(1)
						return
					}
					defer s.Close()
					running.Go(func() { attack(s) })
					for {
						if _, err := s.Write(data); err != nil {
							ended.Add(1)
							return
						}
					}
				})
			}
			for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if got, err := say(t, p, "good", "still here"); err != nil {
					t.Fatalf("another namespace's stream reads %q, %v", got, err)
				}
			}
			flood.Close()
			running.Wait()
			t.Logf("%d streams ended, %d refused, %d MiB at most", ended.Load(), refused.Load(), peak()>>20)
			if got := peak(); got > memoryLimit {
				t.Errorf("%d MiB, want %d at most", got>>20, memoryLimit>>20)
			}
		})
	}
}

// TestMemoryOfTables: routes with large matches on many Pods, the most that the cluster may have, do not take Stowaway's memory, whether
// their carriers read them or not, and while their clients connect again and again. Another namespace's streams work.
func TestMemoryOfTables(t *testing.T) {
	const namespaces, pods = 5, 80
	const routesOfEach = tunnel.MaxRoutedPods / namespaces / pods
	long := strings.Repeat("x", tunnel.MaxMatch-100)
	for name, read := range map[string]bool{"carriers read": true, "carriers do not read": false} {
		t.Run(name, func(t *testing.T) {
			w, peak := newProcess(t)
			shop, good := identity(t), identity(t)
			carriers := []tunnel.Carrier{{Pod: "shop", Name: "shop/web", Key: shop.Key}}
			routes := []tunnel.Route{{ID: "good", Name: "shop/good", ClientKey: good.Key, Port: 80, Pods: []string{"shop"}}}
			var ids, clients []*tunnel.Identity
			for n := range namespaces {
				var uids []string
				for p := range pods {
					uids = append(uids, fmt.Sprintf("p-%d-%d", n, p))
					ids = append(ids, identity(t))
					carriers = append(carriers, tunnel.Carrier{Pod: uids[p], Name: fmt.Sprintf("ns-%d/p-%d", n, p), Key: ids[len(ids)-1].Key})
				}
				for r := range routesOfEach {
					clients = append(clients, identity(t))
					routes = append(routes, tunnel.Route{
						ID: fmt.Sprintf("r-%d-%d", n, r), Name: fmt.Sprintf("ns-%d/r-%d", n, r), ClientKey: clients[len(clients)-1].Key, Port: 8080, Pods: uids,
						Match: &httpmatch.Match{Path: &httpmatch.Text{Exact: &long}},
					})
				}
			}
			w.set(carriers, routes...)
			w.connect(good, "good")
			p := w.mustPeer(shop)
			for _, id := range ids {
				r, err := tunnel.NewRequest(t.Context(), http.MethodGet, tunnel.PathRoutes, nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := w.mustPeer(id).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = response.Body.Close() })
				if read {
					go func() { _, _ = io.Copy(io.Discard, response.Body) }()
				}
			}
			answered := func(d time.Duration) {
				t.Helper()
				streams, longest := 0, time.Duration(0)
				for end := time.Now().Add(d); time.Now().Before(end); streams++ {
					began := time.Now()
					_, err := say(t, p, "good", "still here")
					longest = max(longest, time.Since(began))
					switch {
					case refusal(err) == http.StatusTooManyRequests:
						t.Fatalf("another namespace's stream: %v", err)
					case err != nil && longest < tunnel.PingTimeout: // otherwise this process got no processor, which ends connections
						t.Fatalf("another namespace's stream after %s: %v", longest, err)
					case err != nil:
						p = w.mustPeer(shop)
					}
				}
				t.Logf("%d streams of another namespace in %s, one took %s; %d MiB at most", streams, d, longest, peak()>>20)
			}
			answered(2 * time.Second)
			if got := peak(); got > memoryLimit/2 {
				t.Errorf("%d MiB, want %d at most", got>>20, memoryLimit/2>>20)
			}
			var flapping sync.WaitGroup
			stop := make(chan struct{})
			for n := range namespaces {
				flapping.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
						}
						if conn, err := w.session(clients[n*routesOfEach+i%routesOfEach]); err == nil {
							time.Sleep(5 * time.Millisecond)
							_ = conn.Close()
						}
					}
				})
			}
			answered(8 * time.Second)
			close(stop)
			flapping.Wait()
			if got := peak(); got > memoryLimit {
				t.Errorf("%d MiB, want %d at most", got>>20, memoryLimit>>20)
			}
		})
	}
}
