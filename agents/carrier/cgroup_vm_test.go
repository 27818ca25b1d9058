//go:build vm

package carrier

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// limitedApp, in the environment, is the address of the app, and makes the test a carrier. limitedRoom is the room of its sockets.
	limitedApp, limitedRoom = "SONDE_TEST_LIMITED_APP", "SONDE_TEST_LIMITED_ROOM"
	// testRoom in bytes is a part of handover.SocketMemory, because the virtual machine is small. One process has the sockets of both
	// sides, and some 40 MiB of its own.
	testRoom  = 64 << 20
	testLimit = 2*testRoom + 64<<20
	// slowCallers hold more than testLimit if nothing ends them.
	slowCallers = 512
)

// TestSocketMemoryUnderALimit: a carrier has a memory limit of cgroup v2, and callers that read nothing fill the buffers of their
// connections, closed ones too. It lives, and serves another caller. If it ends no connection, the kernel kills it: so the callers are
// enough. The test changes the kernel's bound for all TCP connections, which is allowed only in a virtual machine.
func TestSocketMemoryUnderALimit(t *testing.T) {
	if os.Getenv(limitedApp) != "" {
		beLimited(t)
		return
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_mem", []byte("200000 300000 400000"), 0o600); err != nil { // in pages
		t.Fatal(err)
	}
	t.Run("it ends connections", func(t *testing.T) {
		l := startLimited(t, testRoom)
		good := l.dial(t, "127.0.0.2")
		said := bufio.NewReader(good)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		l.attack(ctx, &wg)
		answers := 0
		for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			_ = good.SetDeadline(time.Now().Add(4 * patience)) // the virtual processors are slow
			if s := fetch(t, good, said, "/"); s != "app" {
				t.Fatalf("answer %q", s)
			}
			answers++
		}
		stop()
		wg.Wait()
		peak, kills := l.memory(t)
		t.Logf("%d answers; at most %d MiB of %d", answers, peak>>20, testLimit>>20)
		if kills != 0 {
			t.Error("the kernel has killed the carrier")
		}
		if l.resets.Load() == 0 {
			t.Error("no connection had to end")
		}
	})
	t.Run("it ends none", func(t *testing.T) {
		l := startLimited(t, math.MaxInt64)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		l.attack(ctx, &wg)
		select {
		case <-l.ended:
		case <-time.After(2 * time.Minute):
			t.Error("it still runs")
		}
		stop()
		wg.Wait()
		if peak, kills := l.memory(t); kills == 0 {
			t.Errorf("the kernel has not killed it; at most %d MiB of %d", peak>>20, testLimit>>20)
		}
	})
}

// beLimited runs a carrier, prints its address, and ends with its standard input.
func beLimited(t *testing.T) {
	t.Helper()
	room, err := strconv.ParseInt(os.Getenv(limitedRoom), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	_, client := servers()
	f := startWith(t, os.Getenv(limitedApp), client, DefaultConnections, byUser("cli", "alice"))
	f.sockets.Store(room)
	fmt.Println(f.pod.listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// limited is a carrier in a cgroup of its own. resets counts the callers' connections that it reset.
type limited struct {
	*child
	cgroup string
	resets atomic.Int64
}

func startLimited(t *testing.T, room int64) *limited {
	t.Helper()
	const root = "/sys/fs/cgroup"
	l := &limited{cgroup: filepath.Join(root, "sonde-carrier")}
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(l.cgroup, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(l.cgroup) })
	if err := os.WriteFile(filepath.Join(l.cgroup, "memory.max"), []byte(strconv.Itoa(testLimit)), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(l.cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	app := serveTCP(t, func(c duplex) {
		_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10) // this process has no room for more
		bigApp(c)
	})
	attributes := &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
	l.child = startChild(t, "TestSocketMemoryUnderALimit", attributes, limitedApp+"="+app, limitedRoom+"="+strconv.FormatInt(room, 10))
	return l
}

func (l *limited) dial(t *testing.T, from string) net.Conn {
	t.Helper()
	c, err := dialFrom(t.Context(), from, l.address, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// attack begins with slowCallers, one after another. Each one connects again when its connection ends, until ctx ends.
func (l *limited) attack(ctx context.Context, wg *sync.WaitGroup) {
	const between = 25 * time.Millisecond
	requests := []string{request("GET /endless"), request("GET /big", "Connection: close")}
	for i := range slowCallers {
		wg.Go(func() {
			for wait := time.Duration(i) * between; ; wait = slowCallers * between {
				select {
				case <-ctx.Done():
					return
				case <-time.After(wait):
				}
				l.hold(ctx, requests[i%len(requests)])
			}
		})
	}
}

// hold sends a request and reads nothing, until the connection is reset or ctx ends.
func (l *limited) hold(ctx context.Context, request string) {
	c, err := dialFrom(ctx, "127.0.0.1", l.address, true)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, request)
	for ctx.Err() == nil {
		if stateOf(c) == unix.BPF_TCP_CLOSE {
			l.resets.Add(1)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// memory returns how much memory the cgroup has used at most, in bytes, and how many of its processes the kernel has killed.
func (l *limited) memory(t *testing.T) (peak, kills int) {
	t.Helper()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(l.cgroup, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	peak, err := strconv.Atoi(strings.TrimSpace(read("memory.peak")))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(read("memory.events")) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			if kills, err = strconv.Atoi(strings.TrimSpace(n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return peak, kills
}
