package tunnel

import (
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// refusing is a server that answers before it has read the request, and then ends the connection.
type refusing struct {
	answer io.Reader
	ended  chan struct{}
	end    func()
	closed chan struct{}
	close  func()
}

func newRefusing(answer string) *refusing {
	r := &refusing{answer: strings.NewReader(answer), ended: make(chan struct{}), closed: make(chan struct{})}
	r.end, r.close = sync.OnceFunc(func() { close(r.ended) }), sync.OnceFunc(func() { close(r.closed) })
	return r
}

// Write fails, as it does after a RST. The answer may then still be read.
func (r *refusing) Write([]byte) (int, error) {
	r.end()
	return 0, syscall.ECONNRESET
}

func (r *refusing) Read(b []byte) (int, error) {
	<-r.ended
	select {
	case <-r.closed:
		return 0, net.ErrClosed
	case <-time.After(100 * time.Millisecond): // the processor is busy with the other direction
	}
	return r.answer.Read(b)
}

func (r *refusing) CloseWrite() error { return nil }

func (r *refusing) Close() error {
	r.close()
	return nil
}

// caller sends a request without an end, and keeps what comes back.
type caller struct {
	mu     sync.Mutex
	got    strings.Builder
	ended  bool
	closed chan struct{}
	close  func()
}

func newCaller() *caller {
	c := &caller{closed: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	return c
}

func (c *caller) Read(b []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
		return len(b), nil
	}
}

func (c *caller) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got.Write(b)
}

func (c *caller) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return nil
}

func (c *caller) Close() error {
	c.close()
	return nil
}

// TestJoinKeepsAnEarlyAnswer: the caller gets the answer of a server that takes nothing more of the request.
func TestJoinKeepsAnEarlyAnswer(t *testing.T) {
	const answer = "HTTP/1.1 413 Content Too Large\r\n\r\n"
	from, to := newCaller(), newRefusing(answer)
	_, n, err := Join(from, to)
	if err == nil || int(n) != len(answer) || from.got.String() != answer || !from.ended {
		t.Errorf("the caller gets %q (%d bytes, ended %t), error %v", from.got.String(), n, from.ended, err)
	}
}
