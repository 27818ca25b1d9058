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
			good, bad, carrier := identity(t), identity(t), identity(t)
			w.set([]tunnel.Carrier{{Pod: "p", Name: "shop/web", Key: carrier.Key}},
				tunnel.Route{ID: "good", Name: "shop/good", ClientKey: good.Key, Port: 80, Pods: []string{"p"}},
				tunnel.Route{ID: "bad", Name: "flood/bad", ClientKey: bad.Key, Port: 81, Pods: []string{"p"}})
			w.connect(good, "good")
			w.connect(bad, "bad")
			p, flood := w.mustPeer(carrier), w.mustPeer(carrier)
			watch(t, p).await(t, 20*time.Second, "bad good")
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
				if got, err := say(t, p, "good", "still here"); err != nil && !strings.Contains(err.Error(), "memory is short") {
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
