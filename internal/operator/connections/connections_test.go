package connections

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

// TestServingWithoutAListener: a handler may run in another server.
func TestServingWithoutAListener(*testing.T) { Serving(context.Background())() }
