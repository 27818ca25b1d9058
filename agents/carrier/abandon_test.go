package carrier

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// refuser is a server that takes no more at some moment, and sends on.
type refuser struct {
	io.Reader
	io.Closer
	refuses atomic.Bool
	taken   atomic.Int64 // bytes
}

var errRefused = errors.New("refused by the test")

func (r *refuser) Write(b []byte) (int, error) {
	if r.refuses.Load() {
		return 0, errRefused
	}
	r.taken.Add(int64(len(b)))
	return len(b), nil
}

func (r *refuser) CloseWrite() error { return nil }

// TestResponseOfAServerThatTakesNoMore: a server answers early and slowly, and takes no more of the request. Its caller ends its direction
// meanwhile, and gets the whole response, or a reset if the server fails.
func TestResponseOfAServerThatTakesNoMore(t *testing.T) {
	post := request("POST /", "X-User: alice", "Content-Length: 10") + "12345"
	for name, tc := range map[string]struct {
		send, first, rest string
		fails             bool
	}{
		"until close":                   {send: post, first: "HTTP/1.0 200 OK\r\n\r\nfirst", rest: "rest"},
		"until close, the server fails": {send: post, first: "HTTP/1.0 200 OK\r\n\r\nfirst", rest: "rest", fails: true},
		"chunks":                        {send: post, first: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n", rest: "4\r\nrest\r\n0\r\n\r\n"},
		"no HTTP":                       {send: "SELECT 1\r\n", first: "first", rest: "rest"},
		"no HTTP, the server fails":     {send: "SELECT 1\r\n", first: "first", rest: "rest", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, scripted(&recorder{}, nil), nil, byUser("cli", "alice"))
			peer, down := tcpPair(t)
			_ = peer.SetDeadline(time.Now().Add(4 * patience))
			c := newConn(f.Carrier, down, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), f.port))
			from, server := io.Pipe()
			client := &refuser{Reader: from, Closer: from}
			c.adopt(&upstream{duplex: client, route: f.routing.Load().byID["cli"]}, tc.send != post)
			_, _ = io.WriteString(peer, tc.send)
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.serve()
			}()
			holds := func(condition func() bool) func() bool {
				return func() bool {
					c.mu.Lock()
					defer c.mu.Unlock()
					return condition()
				}
			}
			await(t, "the request", func() bool { return client.taken.Load() == int64(len(tc.send)) })
			client.refuses.Store(true)
			_, _ = io.WriteString(peer, "6")
			await(t, "the refusal", holds(func() bool { return c.discard }))
			_, _ = io.WriteString(server, tc.first)
			if _, err := io.ReadFull(peer, make([]byte, len(tc.first))); err != nil {
				t.Fatal(err)
			}
			_ = peer.CloseWrite()
			await(t, "the end of the caller's direction", holds(func() bool { return c.noMore || c.closed }))
			_, _ = io.WriteString(server, tc.rest)
			if tc.fails {
				_ = server.CloseWithError(errRefused)
			} else {
				_ = server.Close()
			}
			if got, reset := readAll(peer); got != tc.rest && !tc.fails || reset != tc.fails {
				t.Errorf("after %q comes %q, reset %t", tc.first, got, reset)
			}
			_ = peer.Close()
			<-done
		})
	}
}

// TestAppResetsDuringUpload: an app resets the connection in the middle of its response, while the caller takes nothing. The carrier learns
// of it when it sends more of the request. What the app sent before must not look whole.
func TestAppResetsDuringUpload(t *testing.T) {
	for name, send := range map[string]string{"until close": request("POST /", "Content-Length: 99"), "no HTTP": "SELECT 1\r\n\r\n"} {
		for end, half := range map[string]bool{"it waits": false, "it ends its direction": true} {
			t.Run(name+", "+end, func(t *testing.T) {
				failed := make(chan struct{})
				app := func(d duplex) {
					tcp := d.(*net.TCPConn)
					_, _ = io.ReadFull(tcp, make([]byte, len(send)))
					_, _ = io.WriteString(tcp, "HTTP/1.0 200 OK\r\n\r\n")
					_ = tcp.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)) // by then all buffers are full
					_, _ = tcp.Write(make([]byte, 64<<20))
					_ = tcp.SetLinger(0)
					_ = tcp.Close()
					close(failed)
				}
				f := start(t, app, nil, byUser("cli", "alice"))
				c := f.dial(t)
				await(t, "the connection", func() bool { return len(f.all()) == 1 })
				one := f.all()[0]
				_, _ = io.WriteString(c, send)
				<-failed
				told := false // a write may take the error, and a read then gets an end
				await(t, "the refusal", func() bool {
					_, err := io.WriteString(c, "x")
					told = told || err != nil
					one.mu.Lock()
					defer one.mu.Unlock()
					return one.discard || one.closed
				})
				if half {
					_ = c.CloseWrite()
					await(t, "the end of the caller's direction", func() bool {
						one.mu.Lock()
						defer one.mu.Unlock()
						return one.noMore || one.closed
					})
				}
				if back, reset := readAll(c); !reset && !told {
					t.Errorf("%d bytes of the response come back, and an end", len(back))
				}
				await(t, "the end of the connection", func() bool { return len(f.all()) == 0 })
			})
		}
	}
}

// TestCallerResetsItsUpload: the kernel copies what a caller sends, and the caller resets the connection. The app learns of it, and the
// connection ends.
func TestCallerResetsItsUpload(t *testing.T) {
	for name, head := range map[string]string{"a long body": request("POST /", "Content-Length: 99999999"), "no HTTP": "SELECT 1\r\n"} {
		t.Run(name, func(t *testing.T) {
			body := strings.Repeat("x", 4*largeBuffer)
			ended := make(chan error, 1)
			got := make(chan struct{})
			app := func(d duplex) {
				_, _ = io.ReadFull(d, make([]byte, len(head)+len(body)))
				close(got)
				_, err := d.Read(make([]byte, 1))
				ended <- err
			}
			f := start(t, app, nil, byUser("cli", "alice"))
			c := f.dial(t)
			_, _ = io.WriteString(c, head+body)
			<-got
			_ = c.SetLinger(0)
			_ = c.Close()
			if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the app's connection ends with %v", err)
			}
			await(t, "the end of the connection", func() bool { return len(f.all()) == 0 })
		})
	}
}

// TestAppEndsDuringUpload: an app sends a whole response and closes, and its kernel then resets the connection, because the caller sends
// more. A caller that takes the response late gets all of it, and a regular end.
func TestAppEndsDuringUpload(t *testing.T) {
	for name, send := range map[string]string{"until close": request("POST /", "Content-Length: 999999"), "no HTTP": "SELECT 1\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			body := "HTTP/1.0 200 OK\r\n\r\n" + strings.Repeat("x", 48<<10) // fits into the buffers before the carrier
			app := func(d duplex) {
				_, _ = io.ReadFull(d, make([]byte, len(send)))
				_, _ = io.WriteString(d, body)
				_ = d.Close()
			}
			f := start(t, app, nil, byUser("cli", "alice"))
			c := f.dialFrom(t, "127.0.0.1", true)
			await(t, "the connection", func() bool { return len(f.all()) == 1 })
			one := f.all()[0]
			_ = one.down.SetWriteBuffer(1) // the end of the response waits in the app's socket
			_, _ = io.WriteString(c, send)
			await(t, "the app's end", func() bool {
				one.mu.Lock()
				defer one.mu.Unlock()
				return one.app != nil && stateOf(one.app.tcp) == unix.BPF_TCP_CLOSE_WAIT
			})
			await(t, "the refusal", func() bool {
				_, _ = io.WriteString(c, "x")
				one.mu.Lock()
				defer one.mu.Unlock()
				return one.discard || one.closed
			})
			if back, reset := readAll(c); back != body || reset {
				t.Errorf("%d of %d bytes come back, reset %t", len(back), len(body), reset)
			}
		})
	}
}

// stateOf returns the kernel's state of a TCP connection.
func stateOf(s syscall.Conn) uint8 {
	info, err := infoOf(s)
	if err != nil {
		return 0 // no state
	}
	return info.State
}

// TestCallerResetsAfterTheClientsEnd: a client has ended its direction, and its caller resets the connection in the middle of an upload. To
// the client the upload does not look whole.
func TestCallerResetsAfterTheClientsEnd(t *testing.T) {
	const hello = "no HTTP\n\n"
	got, ended := make(chan struct{}), make(chan error, 1)
	client := func(_ string, d duplex) {
		_, _ = io.ReadFull(d, make([]byte, len(hello)))
		_ = d.CloseWrite()
		_, _ = d.Read(make([]byte, 1))
		close(got)
		_, err := io.Copy(io.Discard, d)
		ended <- err
	}
	f := start(t, scripted(&recorder{}, nil), client, whole("all"))
	c := f.dial(t)
	_, _ = io.WriteString(c, hello)
	if _, reset := readAll(c); reset {
		t.Fatal("the caller's connection was reset")
	}
	_, _ = io.WriteString(c, "x")
	<-got
	_ = c.SetLinger(0)
	_ = c.Close()
	if err := <-ended; err == nil {
		t.Error("the client sees a regular end of the upload")
	}
}

// TestResetThatAWriteTook: a caller resets the connection in the middle of an upload, and a write to it has taken the error. The next read
// gets an end. To the app the upload does not look whole.
func TestResetThatAWriteTook(t *testing.T) {
	const sent = "a part"
	f := start(t, scripted(&recorder{}, nil), nil, byUser("cli", "alice"))
	peer, down := tcpPair(t)
	near, app := tcpPair(t)
	_ = app.SetDeadline(time.Now().Add(4 * patience))
	c := newConn(f.Carrier, down, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), f.port))
	c.adopt(&upstream{duplex: near, tcp: near}, true)
	_, _ = io.WriteString(peer, sent)
	_ = peer.SetLinger(0)
	_ = peer.Close()
	await(t, "the reset", func() bool { return stateOf(down) == unix.BPF_TCP_CLOSE })
	if _, err := down.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("the write: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.serve()
	}()
	if got, reset := readAll(app); got != sent && got != "" || !reset {
		t.Errorf("the app gets %q, reset %t", got, reset)
	}
	_ = app.Close()
	<-done
}
