package carrier

import (
	"io"
	"net"
	"testing"
)

// TestAppThatResetsEachConnection: the peer sees that the app takes no request, and the carrier does not connect to it again and again.
func TestAppThatResetsEachConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		first     string
		wantReset bool
	}{
		"first request":               {},
		"after a request of a client": {first: alice, wantReset: true},
	} {
		t.Run(name, func(t *testing.T) {
			reset, done := make(chan struct{}), t.Context().Done()
			app := func(d duplex) {
				_ = d.(*net.TCPConn).SetLinger(0)
				_ = d.Close()
				select {
				case reset <- struct{}{}:
				case <-done:
				}
			}
			_, client := servers()
			f := start(t, app, client, byUser("cli", "alice"))
			f.pod.mu.Lock()
			f.pod.onDial = func() {
				select {
				case <-reset:
				case <-done:
				}
			}
			f.pod.mu.Unlock()
			c := f.dial(t)
			if tt.first != "" {
				_, _ = io.WriteString(c, tt.first)
				if _, err := io.ReadFull(c, make([]byte, len(fromCli))); err != nil {
					t.Fatal(err)
				}
			}
			_, _ = io.WriteString(c, get)
			if got, wasReset := readAll(c); got != "" || tt.wantReset && !wasReset {
				t.Errorf("read %q, reset: %t", got, wasReset)
			}
			f.pod.mu.Lock()
			defer f.pod.mu.Unlock()
			if n := len(f.pod.dialed); n != 1 {
				t.Errorf("the carrier connected %d times to the app, want once", n)
			}
		})
	}
}
