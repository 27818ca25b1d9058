package carrier

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// TestRegularEndOfAClient ends connections whose requests all have their responses. The client's stream must end without an error: a reset
// would reach the developer's process.
func TestRegularEndOfAClient(t *testing.T) {
	for name, end := range map[string]func(*fixture, io.Closer){
		"the peer closes":       func(_ *fixture, peer io.Closer) { _ = peer.Close() },
		"the carrier ends":      func(f *fixture, _ io.Closer) { go func() { _ = f.end() }() },
		"another gets the rest": func(_ *fixture, peer io.Closer) { _, _ = io.WriteString(peer.(io.Writer), "no HTTP\n\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			client := func(_ string, d duplex) {
				b := make([]byte, len(alice))
				_, _ = io.ReadFull(d, b)
				_, _ = io.WriteString(d, fromCli)
				n, err := d.Read(b)
				if err == nil {
					err = errors.New(string(b[:n]))
				}
				_ = d.CloseWrite()
				ended <- err
			}
			f := start(t, scripted(&recorder{}, nil), client, byUser("alice", "alice"))
			c := f.dial(t)
			_, _ = io.WriteString(c, alice)
			back := make([]byte, len(fromCli))
			if _, err := io.ReadFull(c, back); err != nil {
				t.Fatal(err)
			}
			end(f, c)
			select {
			case err := <-ended:
				if !errors.Is(err, io.EOF) {
					t.Errorf("the client's stream ends with %v", err)
				}
			case <-time.After(patience):
				t.Error("the client's stream does not end")
			}
		})
	}
}

// TestClientThatGoesOn sends after the peer has gone. Its stream ends nevertheless.
func TestClientThatGoesOn(t *testing.T) {
	ended := make(chan struct{})
	client := func(_ string, d duplex) {
		defer close(ended)
		_, _ = io.ReadFull(d, make([]byte, len(alice)))
		_, _ = io.WriteString(d, fromCli)
		_, _ = io.Copy(io.Discard, d)
		for {
			if _, err := io.WriteString(d, "more"); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	f := start(t, scripted(&recorder{}, nil), client, byUser("alice", "alice"))
	c := f.dial(t)
	_, _ = io.WriteString(c, alice)
	if _, err := io.ReadFull(c, make([]byte, len(fromCli))); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the client's stream does not end")
	}
	await(t, "the end of the connection", func() bool { return len(f.all()) == 0 })
}

// TestPinnedResponseOfAnEndingCarrier ends the carrier after an app that changed the protocol has ended its direction. The peer, which reads
// late, gets all of it.
func TestPinnedResponseOfAnEndingCarrier(t *testing.T) {
	const switching, size = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", 64 << 10
	for name, send := range map[string]string{"after an upgrade": request("GET /", "Connection: Upgrade", "Upgrade: x"), "no HTTP": "SELECT 1\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := scripted(&recorder{}, []answer{{after: "\r\n\r\n", send: switching + strings.Repeat("x", size), end: "half"}})
			f := start(t, app, nil, byUser("alice", "alice"))
			c := f.dial(t)
			_ = c.SetReadBuffer(4 << 10)
			_, _ = io.WriteString(c, send)
			await(t, "the end of the app", func() bool {
				for _, one := range f.all() {
					one.mu.Lock()
					defer one.mu.Unlock()
					return one.raw != nil && one.raw.ended
				}
				return false
			})
			time.Sleep(50 * time.Millisecond) // until the end is passed on
			_ = f.end()
			if got, reset := readAll(c); len(got) != len(switching)+size || reset {
				t.Errorf("%d bytes come back, want %d, reset %t", len(got), len(switching)+size, reset)
			}
		})
	}
}

// TestLastBytesToAClient: a client that has ended its own direction gets what the peer sends until its end.
func TestLastBytesToAClient(t *testing.T) {
	const hello, size = "no HTTP\n\n", 64 << 10
	type end struct {
		n   int64
		err error
	}
	ended := make(chan end, 1)
	client := func(_ string, d duplex) {
		_, _ = io.ReadFull(d, make([]byte, len(hello)))
		_ = d.CloseWrite()
		n, err := io.Copy(io.Discard, d)
		ended <- end{n, err}
	}
	f := start(t, scripted(&recorder{}, nil), client, whole("all"))
	for range 20 {
		c := f.dial(t)
		_, _ = io.WriteString(c, hello)
		if _, reset := readAll(c); reset {
			t.Fatal("the peer's connection was reset")
		}
		_, _ = c.Write(make([]byte, size))
		_ = c.CloseWrite()
		if got := <-ended; got.n != size || got.err != nil {
			t.Fatalf("the client gets %d bytes of %d, and then %v", got.n, size, got.err)
		}
	}
}

// TestResponseUntilTheEndOfAClient: a client that ends its direction to end its response sees the regular end of its request, too.
func TestResponseUntilTheEndOfAClient(t *testing.T) {
	const answer = "HTTP/1.0 200 OK\r\n\r\nanswer"
	ended := make(chan error, 1)
	client := func(_ string, d duplex) {
		_, _ = io.ReadFull(d, make([]byte, len(alice)))
		_, _ = io.WriteString(d, answer)
		_ = d.CloseWrite()
		_, err := io.Copy(io.Discard, d)
		ended <- err
	}
	f := start(t, nil, client, byUser("alice", "alice"))
	c := f.dial(t)
	_, _ = io.WriteString(c, alice)
	if back, reset := readAll(c); back != answer || reset {
		t.Errorf("%q comes back, reset %t", back, reset)
	}
	if err := <-ended; err != nil {
		t.Errorf("the client's stream ends with %v", err)
	}
}
