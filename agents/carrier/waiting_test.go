package carrier

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestClosedConnectionDoesNotWait: while memory is short, a connection that is closed, and whose peer has not taken all, takes no place of
// one that is not read. Its client sent more than its response, so nothing more is read of it.
func TestClosedConnectionDoesNotWait(t *testing.T) {
	const last = "last bytes"
	head := "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(bigResponse) + "\r\n\r\n"
	ready := make(chan struct{})
	client := func(_ string, d duplex) {
		b := make([]byte, len(alice))
		if _, err := io.ReadFull(d, b); err != nil {
			return
		}
		if string(b) != alice {
			_, _ = io.WriteString(d, "HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n")
			for b := make([]byte, 64<<10); ; {
				if _, err := d.Write(b); err != nil {
					return
				}
			}
		}
		_, _ = io.WriteString(d, head+strings.Repeat("x", bigResponse-len(last)))
		<-ready
		_, _ = io.WriteString(d, last+"more")
		_, _ = io.Copy(io.Discard, d)
	}
	f := start(t, scripted(&recorder{}, nil), client, byUser("cli", "alice"))
	closed := f.dialFrom(t, "127.0.0.1", true)
	_, _ = io.WriteString(closed, alice)
	_ = closed.CloseWrite()
	sent := uint64(len(head) + bigResponse - len(last))
	await(t, "all but the last bytes", func() bool { return f.routing.Load().byID["cli"].fromClient.Load() == sent })
	close(ready) // the carrier reads what follows at once, so it knows of the rest
	f.awaitLeaving(t)
	time.Sleep(10 * time.Millisecond) // it waits longer than the other
	slow := f.dialFrom(t, "127.0.0.1", true)
	_, _ = io.WriteString(slow, strings.Replace(alice, "GET /", "PUT /", 1))
	await(t, "a connection that is not read", func() bool {
		for _, w := range f.waiting(time.Now()) {
			if w.Of.down.RemoteAddr().String() == slow.LocalAddr().String() {
				return true
			}
		}
		return false
	})
	for _, one := range f.all() {
		one.mu.Lock()
		up, isClosed := one.client, one.closed
		one.mu.Unlock()
		if isClosed && up.flow.Waits(time.Now()) == 0 {
			t.Error("the test's client has not sent more than its response")
		}
	}
	f.over.Store(1)
	await(t, "the end of the connection that is not read", func() bool { return len(f.waiting(time.Now())) == 0 })
	if _, err := io.Copy(io.Discard, slow); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection that is not read ends with %v", err)
	}
	if s, reset := readAll(closed); len(s) != len(head)+bigResponse || reset {
		t.Errorf("the closed connection gives %d bytes, reset %t", len(s), reset)
	}
}
