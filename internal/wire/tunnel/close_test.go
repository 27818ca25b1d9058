package tunnel

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// soon fails if do takes as long as the alert of TLS may.
func soon(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(500 * time.Millisecond):
		t.Errorf("%s waits for a side that does not read", what)
	}
}

// The other side reads the beginning of HTTP/2, and then nothing more. A pipe has no buffer, like a connection whose buffers are full.
func TestPeerCloseDoesNotWait(t *testing.T) {
	near, far := tlsPair(t, func(c net.Conn) net.Conn { return c })
	go func() { _, _ = far.Read(make([]byte, 4<<10)) }()
	p, err := NewPeer(near, Far)
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "Close", p.Close)
}

func TestServeEndsWithItsContext(t *testing.T) {
	for name, below := range map[string]func(net.Conn) net.Conn{"plain": func(c net.Conn) net.Conn { return c }, "batch": Batch} {
		t.Run(name, func(t *testing.T) {
			near, far := tlsPair(t, below)
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan struct{})
			go func() {
				defer close(served)
				Serve(ctx, near, http.NotFoundHandler(), Near)
			}()
			frames := http2.NewFramer(far, far)
			begun := make(chan error, 1)
			go func() {
				_, err := io.WriteString(far, http2.ClientPreface)
				if err == nil {
					err = frames.WriteSettings()
				}
				begun <- err
			}()
			for acknowledged := false; !acknowledged; {
				f, err := frames.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				settings, ok := f.(*http2.SettingsFrame)
				acknowledged = ok && settings.IsAck()
			}
			if err := <-begun; err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond) // until the write of that frame has returned: a Close during a write does not write
			soon(t, "Serve", func() {
				cancel()
				<-served
			})
		})
	}
}
