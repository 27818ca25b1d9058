package carrier

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/handover"
)

func TestBufferSize(t *testing.T) {
	for n, want := range map[int]int{
		0: 0, 1: 0, 16: 0, 17: 3 << 20, 32: 3 << 20, 33: 3 << 19, 64: 3 << 19, 1000: 96 << 10, 1024: 96 << 10, 1025: 64 << 10, DefaultConnections: 64 << 10,
	} {
		if got := bufferSize(n); got != want {
			t.Errorf("%d connections: %d bytes, want %d", n, got, want)
		}
	}
	for n := fewConnections + 1; n <= DefaultConnections; n++ {
		if size := bufferSize(n); size > max(minBuffer, allBuffers/n) || n*size > handover.SocketMemory {
			t.Fatalf("%d connections: %d bytes are too much", n, size)
		}
	}
	if DefaultConnections*largeHolder >= handover.SocketMemory/2 {
		t.Error("connections that hold too little to end can exhaust the memory of sockets")
	}
}

// TestManyConnectionsHaveSmallBuffers: the sockets of both sides of a new connection have smaller buffers when there are many.
func TestManyConnectionsHaveSmallBuffers(t *testing.T) {
	app, client := servers()
	f := start(t, app, client, byUser("cli", "alice"))
	for range 2 * fewConnections {
		c := f.dial(t)
		fetch(t, c, bufio.NewReader(c), "/")
	}
	small := 0
	for _, one := range f.all() {
		receive, send := buffersOf(t, one.down)
		appReceive, appSend := buffersOf(t, one.app.tcp)
		if one.buffers == 0 {
			continue
		}
		small++
		wantReceive, wantSend := 2*min(one.buffers/2, kernelBound(t, "rmem_max")), 2*min(one.buffers/2, kernelBound(t, "wmem_max"))
		if receive != wantReceive || appReceive != wantReceive || send != wantSend || appSend != wantSend {
			t.Errorf("buffers of %d, %d, %d and %d bytes, want twice %d for receiving and %d for sending", receive, send, appReceive, appSend, wantReceive, wantSend)
		}
	}
	if small != fewConnections {
		t.Errorf("%d connections have small buffers, want %d", small, fewConnections)
	}
}

// buffersOf returns the sizes of a socket's buffers in bytes.
func buffersOf(tb testing.TB, s syscall.Conn) (receive, send int) {
	tb.Helper()
	if err := control(s, func(fd int) (err error) {
		if receive, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil {
			return err
		}
		send, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
		return err
	}); err != nil {
		tb.Fatal(err)
	}
	return receive, send
}

// fetch asks for a path, and returns the body of the answer.
func fetch(tb testing.TB, c net.Conn, in *bufio.Reader, path string) string {
	tb.Helper()
	_, _ = io.WriteString(c, request("GET "+path))
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// kernelBound returns a setting of net.core in bytes.
func kernelBound(tb testing.TB, name string) int {
	tb.Helper()
	b, err := os.ReadFile("/proc/sys/net/core/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// TestWorstOf: connections end of the peer that holds the most on that side, the slowest first, and none that holds little.
func TestWorstOf(t *testing.T) {
	_, client := servers()
	f := start(t, bigApp, client, byUser("cli", "alice"))
	for _, from := range []string{"127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.2"} {
		f.dialFrom(t, from, false)
	}
	await(t, "all connections", func() bool { return len(f.all()) == 4 })
	var many []*conn
	var other *conn
	for _, one := range f.all() {
		if one.peer() == "127.0.0.2" {
			other = one
		} else {
			many = append(many, one)
		}
	}
	const kib = 1 << 10
	large := []holder{
		{of: many[0], holds: [sides]int{40 * kib, 0}, moved: 500 * kib},
		{of: many[1], holds: [sides]int{30 * kib, 30 * kib}, moved: 1},
		{of: many[2], holds: [sides]int{largeHolder - 1, 20 * kib}},
		{of: other, holds: [sides]int{60 * kib, 90 * kib}},
	}
	for name, tc := range map[string]struct {
		side, free int
		want       []*conn
	}{
		"the slowest":                             {side: sideAccepted, free: 1, want: []*conn{many[1]}},
		"as many as free enough":                  {side: sideAccepted, free: 31 * kib, want: []*conn{many[1], many[0]}},
		"then of the next peer, none with little": {side: sideAccepted, free: 500 * kib, want: []*conn{many[1], many[0], other}},
		"the larger one of two that move little":  {side: sideApp, free: 100 * kib, want: []*conn{other, many[1]}},
		"the other side":                          {side: sideApp, free: 1, want: []*conn{other}},
	} {
		if got := worstOf(large, tc.side, tc.free); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %d connections, want %d", name, len(got), len(tc.want))
		}
	}
}

// TestMoved counts what a peer took and sent, also bytes that the kernel copied.
func TestMoved(t *testing.T) {
	_, client := servers()
	f := start(t, bigApp, client, byUser("cli", "alice"))
	c := f.dial(t)
	in := bufio.NewReader(c)
	fetch(t, c, in, "/big")
	one := f.all()[0]
	var n int64
	await(t, "the last acknowledgement", func() bool { n += one.moved(); return n > bigResponse })
	if n > bigResponse+4096 {
		t.Errorf("moved %d bytes", n)
	}
	if n := one.moved(); n != 0 {
		t.Errorf("moved %d bytes since then", n)
	}
}

const (
	slowPeers = 4
	// bigResponse in bytes fits into what the kernel first gives a socket for sending on loopback.
	bigResponse = 512 << 10
)

// bigApp answers /big with a bigResponse, /endless with a response without an end, and everything else with "app".
func bigApp(c duplex) {
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body := "app"
		switch r.URL.Path {
		case "/big":
			body = strings.Repeat("x", bigResponse)
		case "/endless":
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n")
			for b := make([]byte, 64<<10); err == nil; {
				_, err = c.Write(b)
			}
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
		if r.Close {
			return
		}
	}
}

// dialFrom connects from another address. With small, the peer's kernel takes few bytes.
func (f *fixture) dialFrom(t *testing.T, address string, small bool) *net.TCPConn {
	t.Helper()
	c, err := dialFrom(t.Context(), address, f.pod.listener.Addr().String(), small)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(4 * patience))
	return c
}

func dialFrom(ctx context.Context, from, to string, small bool) (*net.TCPConn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Control: func(_, _ string, raw syscall.RawConn) error {
		if !small {
			return nil
		}
		return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
	}}
	c, err := d.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// TestShortSocketMemory: the sockets of a container hold too much. Then the app gets new connections, and connections of the peer that
// holds the most end. Others go on, and steering comes back.
func TestShortSocketMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		request string
		// side that holds too much; the other one must not.
		side int
		// closed: the carrier has closed the connections, and the peers have not taken all.
		closed bool
	}{
		"accepted sockets":        {request: request("GET /big"), side: sideAccepted},
		"closed accepted sockets": {request: request("GET /big", "Connection: close"), side: sideAccepted, closed: true},
		"sockets to the app":      {request: request("GET /endless"), side: sideApp},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := servers()
			f := start(t, bigApp, client, byUser("cli", "alice"))
			await(t, "steering", func() bool { return len(f.pod.steered()) == 1 })
			good := f.dialFrom(t, "127.0.0.2", false)
			said := bufio.NewReader(good)
			say := func() {
				t.Helper()
				if s := fetch(t, good, said, "/"); s != "app" {
					t.Errorf("answer %q", s)
				}
			}
			say()
			var slow []*net.TCPConn
			for range slowPeers {
				slow = append(slow, f.dialFrom(t, "127.0.0.1", true))
			}
			await(t, "all connections", func() bool { return len(f.all()) == slowPeers+1 })
			if tc.side == sideApp { // so little room for sending that the app's bytes stay in front of the carrier
				for _, one := range f.all() {
					_ = one.down.SetWriteBuffer(1)
				}
			}
			for _, c := range slow {
				_, _ = io.WriteString(c, tc.request)
			}
			most := f.awaitHeld(t, tc.side, tc.closed)
			say()
			f.sockets.Store(int64(most))
			await(t, "the end of steering", func() bool {
				s := f.pod.steered()
				return len(s) > 1 && !s[1].on
			})
			// Before the peers read: one that has taken all that the carrier holds for it needs no reset.
			var reset *net.TCPConn
			await(t, "the reset of a connection of the peer that holds the most", func() bool {
				i := slices.IndexFunc(slow, failed)
				if i >= 0 {
					reset = slow[i]
				}
				return i >= 0
			})
			if _, err := io.Copy(io.Discard, reset); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the connection ends with %v", err)
			}
			for _, c := range slow {
				go func() { _, _ = io.Copy(io.Discard, c) }()
			}
			say()
			await(t, "steering again", func() bool {
				s := f.pod.steered()
				return s[len(s)-1].on
			})
		})
	}
}

// failed reports whether a connection has an error, without reading from it.
func failed(c *net.TCPConn) (yes bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		polled := []unix.PollFd{{Fd: int32(fd)}}
		_, _ = unix.Poll(polled, 0)
		yes = polled[0].Revents&unix.POLLERR != 0
	})
	return yes
}

// awaitHeld waits until the slow peers' sockets of a side hold much, and the sum stays. It returns a room in bytes: this side holds more
// than half of it, and the other side less.
func (f *fixture) awaitHeld(t *testing.T, side int, closed bool) (room int) {
	t.Helper()
	last, since := 0, time.Now()
	await(t, "sockets that hold much", func() bool {
		sums, large := f.measure()
		if sums[side] != last {
			last, since = sums[side], time.Now()
		}
		if closed {
			for _, h := range large {
				h.of.mu.Lock()
				leaving := h.of.leaving != nil
				h.of.mu.Unlock()
				if !leaving {
					return false
				}
			}
		}
		room = last + last/2
		return len(large) == slowPeers && time.Since(since) > 200*time.Millisecond && sums[1-side] < room/2
	})
	return room
}

// TestClosedConnectionIsTaken: a peer that reads late gets all of a response after which the connection was closed, and its end.
func TestClosedConnectionIsTaken(t *testing.T) {
	_, client := servers()
	f := start(t, bigApp, client, byUser("cli", "alice"))
	c := f.dialFrom(t, "127.0.0.1", true)
	_, _ = io.WriteString(c, request("GET /big", "Connection: close"))
	f.awaitLeaving(t)
	if sums, _ := f.measure(); sums[sideAccepted] < largeHolder {
		t.Errorf("sockets of peers hold %d bytes", sums[sideAccepted])
	}
	if s, reset := readAll(c); len(s) < bigResponse || reset {
		t.Errorf("got %d bytes, reset %t", len(s), reset)
	}
	await(t, "the connection's end", func() bool { return len(f.all()) == 0 })
}

func (f *fixture) awaitLeaving(t *testing.T) {
	t.Helper()
	await(t, "a connection whose peer has not taken all", func() bool {
		for _, one := range f.all() {
			one.mu.Lock()
			leaving := one.leaving != nil
			one.mu.Unlock()
			if leaving {
				return true
			}
		}
		return false
	})
}

// BenchmarkMeasure is a check of as many connections as a carrier holds.
func BenchmarkMeasure(b *testing.B) {
	app, client := servers()
	f := startWith(b, serveTCP(b, app), client, 2*DefaultConnections, byUser("cli", "alice"))
	var fds unix.Rlimit
	const connections = 1024
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &fds); err != nil || fds.Cur < 5*connections {
		b.Skip("too few files may be open:", fds.Cur, err)
	}
	for range connections {
		c := f.dial(b)
		fetch(b, c, bufio.NewReader(c), "/")
	}
	for b.Loop() {
		if _, large := f.measure(); len(large) > 0 {
			b.Error("large holders:", len(large))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/connections, "ns/connection")
}
