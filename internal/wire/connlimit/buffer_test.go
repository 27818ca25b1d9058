package connlimit

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// window of the client's socket in bytes.
const window = 64 << 10

// pair returns a client that reads nothing, and the server's side of its connection with the context of its requests.
func pair(t *testing.T) (client *net.TCPConn, server net.Conn, ctx context.Context) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(inner, 1)
	t.Cleanup(func() { _ = l.Close() })
	d, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	client = d.(*net.TCPConn)
	if err := client.SetReadBuffer(window / 2); err != nil { // Linux doubles it
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return client, server, Context(t.Context(), server)
}

// fill writes until the kernel takes no more, and returns the bytes that it has taken.
func fill(t *testing.T, c net.Conn) (taken int) {
	t.Helper()
	for b := make([]byte, 4<<10); ; {
		if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Write(b)
		if taken += n; err != nil {
			return taken
		}
	}
}

// TestWriteBuffer: the kernel takes little for another side that reads nothing, and less without a long answer.
func TestWriteBuffer(t *testing.T) {
	_, server, ctx := pair(t)
	stranger := fill(t, server)
	defer Serving(ctx)()
	if more := fill(t, server); more > 0 {
		t.Errorf("for a small answer to a known user the kernel took %d bytes more", more)
	}
	sent := Sending(ctx)
	known := stranger + fill(t, server)
	sent()
	if most := 2*strangerBuffer + window + 16<<10; stranger > most {
		t.Errorf("the kernel took %d bytes for a stranger, want %d at most", stranger, most)
	}
	if most := 2*WriteBuffer + window + 64<<10; known > most || known < WriteBuffer {
		t.Errorf("the kernel took %d bytes of a long answer, want %d to %d", known, WriteBuffer, most)
	}
	if more := fill(t, server); more > 0 {
		t.Errorf("after the answer the kernel took %d bytes more", more)
	}
}

// TestAwaitTaken: a request ends when its client has taken the answer, or takes too long. Then the client learns that the
// answer is cut.
func TestAwaitTaken(t *testing.T) {
	t.Run("nothing", func(t *testing.T) {
		_, _, ctx := pair(t)
		AwaitTaken(ctx, time.Hour)
	})
	t.Run("all", func(t *testing.T) {
		client, server, ctx := pair(t)
		defer Sending(ctx)()
		taken := fill(t, server)
		read := make(chan int64, 1)
		go func() {
			for range 5 { // slowly, but all the time
				time.Sleep(200 * time.Millisecond)
				_, _ = io.CopyN(io.Discard, client, int64(taken/8))
			}
			n, _ := io.Copy(io.Discard, client)
			read <- n + int64(taken/8)*5
		}()
		AwaitTaken(ctx, 10*time.Second)
		_ = server.Close()
		if n := <-read; n != int64(taken) {
			t.Errorf("the client got %d of %d bytes", n, taken)
		}
	})
	for name, cancelled := range map[string]bool{"none": false, "none, and the request is over": true} {
		t.Run(name, func(t *testing.T) {
			client, server, ctx := pair(t)
			defer Sending(ctx)()
			fill(t, server)
			patience := 300 * time.Millisecond
			if cancelled {
				over, cancel := context.WithCancel(ctx)
				cancel()
				ctx, patience = over, time.Hour
			}
			AwaitTaken(ctx, patience)
			if _, err := io.Copy(io.Discard, client); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client gets %v, want a reset", err)
			}
			if _, err := server.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the connection is open: %v", err)
			}
		})
	}
	t.Run("the client has gone", func(t *testing.T) {
		client, server, ctx := pair(t)
		defer Sending(ctx)()
		fill(t, server)
		_ = client.SetLinger(0)
		_ = client.Close()
		AwaitTaken(ctx, time.Hour)
	})
}
