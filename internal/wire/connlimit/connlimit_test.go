package connlimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

// client opens connections from a loopback address.
type client struct {
	t    *testing.T
	to   string
	open map[string]net.Conn
}

func (c client) dial(name, from string) {
	c.t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(c.t.Context(), "tcp", c.to)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	c.open[name] = conn
}

// ended waits until the server has closed the connections with these names, and fails if it has closed others.
func (c client) ended(want ...string) {
	c.t.Helper()
	for name, conn := range c.open {
		wait := 20 * time.Millisecond // that long a connection must live
		if slices.Contains(want, name) {
			wait = 10 * time.Second
		}
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		_, err := conn.Read(make([]byte, 1))
		if lives := errors.Is(err, os.ErrDeadlineExceeded); lives == slices.Contains(want, name) {
			c.t.Errorf("%s lives: %t (%v), want %v closed", name, lives, err, want)
		}
	}
}

// TestTheLargestHostGivesWay: a host that takes all connections loses its oldest, and no other host loses any.
func TestTheLargestHostGivesWay(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(inner, 4)
	t.Cleanup(func() { l.Close() })
	accepted := make(chan net.Conn)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	c := client{t, l.Addr().String(), map[string]net.Conn{}}
	var server []net.Conn
	dial := func(name, from string) {
		c.dial(name, from)
		server = append(server, <-accepted)
	}
	dial("victim 1", "127.0.0.9")
	dial("1", "127.0.0.2")
	dial("2", "127.0.0.2")
	dial("3", "127.0.0.2")
	c.ended()
	dial("victim 2", "127.0.0.9")
	c.ended("1")
	dial("4", "127.0.0.2")
	c.ended("1", "2")
	for _, conn := range server {
		_ = conn.Close()
		_ = conn.Close() // counts nothing
	}
	if len(l.open) != 0 {
		t.Errorf("%d connections are still counted", len(l.open))
	}
}

// TestARequestKeepsItsConnection: above the limit only connections are closed that serve no known user.
func TestARequestKeepsItsConnection(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){"plain": (*httptest.Server).Start, "TLS": (*httptest.Server).StartTLS} {
		t.Run(name, func(t *testing.T) {
			begun, end := make(chan struct{}), make(chan struct{})
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer Serving(r.Context())()
				close(begun)
				<-end
				fmt.Fprint(w, "whole")
			}))
			s.Listener = Listen(s.Listener, 2)
			s.Config.ConnContext = Context
			start(s)
			t.Cleanup(s.Close)
			body := make(chan string)
			go func() {
				resp, err := s.Client().Get(s.URL)
				if err != nil {
					body <- err.Error()
					return
				}
				defer resp.Body.Close()
				b, _ := io.ReadAll(resp.Body)
				body <- string(b)
			}()
			<-begun
			c := client{t, s.Listener.Addr().String(), map[string]net.Conn{}}
			for i := range 5 {
				c.dial(fmt.Sprint(i), "127.0.0.1") // the host of the request
			}
			c.ended("0", "1", "2", "3")
			close(end)
			if got := <-body; got != "whole" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestStrangers: connections without a request of a known user have a bound of their own, and the others do not count for it.
func TestStrangers(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(inner, 100).BoundStrangers(2)
	t.Cleanup(func() { l.Close() })
	c := client{t, l.Addr().String(), map[string]net.Conn{}}
	dial := func(name string) context.Context {
		t.Helper()
		c.dial(name, "127.0.0.2")
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return Context(t.Context(), conn)
	}
	first := Serving(dial("known 1"))
	second := Serving(dial("known 2"))
	dial("stranger 1")
	dial("stranger 2")
	c.ended()
	dial("stranger 3")
	c.ended("stranger 1")
	first()
	dial("stranger 4")
	c.ended("stranger 1", "known 1", "stranger 2")
	second()
	if l.strangers != 3 {
		t.Errorf("%d strangers, want 3", l.strangers)
	}
}

// TestServingWithoutAListener: a handler may run in another server.
func TestServingWithoutAListener(*testing.T) { Serving(context.Background())() }

// wait waits for a condition.
func wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s never came", what)
		}
	}
}

// TestHeld: connections count with what they have sent while they wait for more. Requests of known users count nothing.
func TestHeld(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(inner, 100)
	t.Cleanup(func() { l.Close() })
	c := client{t, l.Addr().String(), map[string]net.Conn{}}
	server := map[string]*connection{}
	send := func(name, from string, bytes int) {
		t.Helper()
		c.dial(name, from)
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		server[name], _ = accepted.(*connection)
		go func() { _, _ = c.open[name].Write(make([]byte, bytes)) }()
		if _, err := io.ReadFull(accepted, make([]byte, bytes)); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = accepted.Read(make([]byte, 1)) }()
	}
	held := func(want int) {
		t.Helper()
		wait(t, fmt.Sprint(want, " bytes"), func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.held == want
		})
	}
	const half = MaxHeld / 2
	send("victim", "127.0.0.9", half/2)
	send("1", "127.0.0.2", half/2)
	send("2", "127.0.0.2", half)
	held(MaxHeld)
	c.ended()
	send("3", "127.0.0.2", 1)
	c.ended("1")
	held(MaxHeld - half/2 + 1)
	server["2"].serve(1)
	held(half/2 + 1)
	send("4", "127.0.0.3", half)
	send("5", "127.0.0.3", half)
	c.ended("1", "4") // not the one that serves
	held(half/2 + 1 + half)
	server["2"].serve(-1)
	held(half/2 + 1 + half) // until it waits for its next request
	if server["2"].received != HeaderBytes {
		t.Errorf("after a request of a known user %d bytes may be a further one, want %d", server["2"].received, HeaderBytes)
	}
	for _, s := range server {
		_ = s.Close()
		_ = s.Close() // counts nothing
	}
	held(0)
}

// TestKnownUsersReadWithoutTheLock: a flood of connections keeps the lock busy, and delays no known user.
func TestKnownUsersReadWithoutTheLock(t *testing.T) {
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	l := Listen(nil, 1)
	c := &connection{Conn: near, listener: l}
	l.add(c)
	defer Serving(Context(t.Context(), c))()
	l.mu.Lock()
	defer l.mu.Unlock()
	read := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		read <- err
	}()
	_ = far.SetWriteDeadline(time.Now().Add(5 * time.Second))
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatalf("it waits for the lock: %v", err)
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
}

// TestEndOfAnAnswer: a connection gives way when its answer was sent and its client has not taken all. A known user gets all of it. What a
// stranger has not taken is thrown away.
func TestEndOfAnAnswer(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	for name, size := range map[string]int{"a known user": 100 << 10, "a stranger": strangerBuffer} {
		known := size > strangerBuffer
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if known {
					defer Serving(r.Context())()
					Sending(r.Context())
				}
				_, _ = w.Write(make([]byte, size))
			}))
			s.Listener = Listen(s.Listener, 1)
			s.Config.ConnContext = Context
			sent := make(chan struct{}, 1)
			s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateIdle {
					sent <- struct{}{}
				}
			}
			s.Start()
			t.Cleanup(s.Close)
			small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
				return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10) })
			}}
			slow, err := small.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer slow.Close()
			_ = slow.SetDeadline(time.Now().Add(time.Minute))
			_, _ = fmt.Fprint(slow, request)
			<-sent
			c := client{t, s.Listener.Addr().String(), map[string]net.Conn{}}
			c.dial("another", "127.0.0.2")
			_, _ = fmt.Fprint(c.open["another"], request)
			<-sent // it is served after the first one was closed
			b, err := io.ReadAll(slow)
			if whole := err == nil && len(b) > size; whole != known {
				t.Errorf("%d bytes come, then %v", len(b), err)
			}
		})
	}
}
