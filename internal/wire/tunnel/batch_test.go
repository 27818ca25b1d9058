package tunnel

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// counted counts the writes of a connection.
type counted struct {
	net.Conn
	writes atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// tlsPair returns both ends of a TLS connection, of which the first is above below.
func tlsPair(t *testing.T, below func(net.Conn) net.Conn) (net.Conn, net.Conn) {
	t.Helper()
	a, b := identity(t), identity(t)
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	client, server := tls.Client(below(near), a.ClientTLS(b.Key)), tls.Server(far, b.ServerTLS(func(PublicKey) bool { return true }))
	ended := make(chan error, 1)
	go func() { ended <- Handshake(t.Context(), server) }()
	if err := Handshake(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return client, server
}

// All records of one write are one write of the connection below, and arrive.
func TestBatch(t *testing.T) {
	for _, size := range []int{1, oneRecord, oneRecord + 1, answerFrameSize + 9, 1 << 20} {
		var raw *counted
		near, far := tlsPair(t, func(c net.Conn) net.Conn {
			raw = &counted{Conn: c}
			return Batch(raw)
		})
		near = withBatch(near)
		sent := make([]byte, size)
		_, _ = rand.Read(sent)
		before := raw.writes.Load()
		errs := make(chan error, 1)
		go func() {
			n, err := near.Write(sent)
			if err == nil && n != size {
				err = io.ErrShortWrite
			}
			errs <- err
		}()
		got := make([]byte, size)
		if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes: other bytes arrive (%v)", size, err)
		}
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
		if n := raw.writes.Load() - before; n != 1 {
			t.Errorf("%d bytes: %d writes, want 1", size, n)
		}
	}
}

// slow takes a part of each write, and then the deadline has passed.
type slow struct {
	net.Conn
	part      int
	deadlines int
}

func (s *slow) Write(b []byte) (int, error) {
	if s.part == 0 || len(b) <= s.part {
		return s.Conn.Write(b)
	}
	n, err := s.Conn.Write(b[:s.part])
	if err == nil {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

func (s *slow) SetWriteDeadline(time.Time) error {
	s.deadlines++
	return nil
}

// A slow network needs several times the deadline for one write, which is no error while it takes some bytes.
func TestBatchOnASlowNetwork(t *testing.T) {
	var raw *slow
	near, far := tlsPair(t, func(c net.Conn) net.Conn {
		raw = &slow{Conn: c}
		return Batch(raw)
	})
	raw.part = 10_000
	sent := make([]byte, answerFrameSize)
	_, _ = rand.Read(sent)
	errs := make(chan error, 1)
	go func() {
		_, err := withBatch(near).Write(sent)
		errs <- err
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("other bytes arrive (%v)", err)
	}
	if err := <-errs; err != nil || raw.deadlines < 6 {
		t.Errorf("%v after %d further deadlines", err, raw.deadlines)
	}
}

// A connection that takes nothing fails.
func TestBatchOnADeadNetwork(t *testing.T) {
	near, _ := tlsPair(t, Batch)
	if err := near.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := withBatch(near).Write(make([]byte, answerFrameSize)); err == nil {
		t.Errorf("%d bytes were written, and nobody reads", n)
	}
}

// BenchmarkAnswer measures the direction from the side that answers.
func BenchmarkAnswer(b *testing.B) {
	const size = 256 << 20
	p := pair(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := Accept(w, r)
		if err != nil {
			return
		}
		_, _ = io.CopyBuffer(struct{ io.Writer }{s}, io.LimitReader(zeros{}, size), make([]byte, copyBuffer))
		_ = s.CloseWrite()
	}))
	b.SetBytes(size)
	for b.Loop() {
		s, err := p.Open(b.Context(), "/", nil)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, struct{ io.Reader }{s}); err != nil || n != size {
			b.Fatal(n, err)
		}
		_ = s.Close()
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
