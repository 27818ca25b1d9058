package tunnel

import (
	"errors"
	"io"
	"sync"
	"syscall"
)

// Duplex is a connection whose directions end one by one.
type Duplex interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// copyBuffer in bytes of one direction.
const copyBuffer = sentFrame

var buffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// Join copies both directions until both have ended, and closes both sides. It returns the bytes of each direction, and the first
// error.
func Join(a, b Duplex) (toB, toA int64, err error) {
	var wg sync.WaitGroup
	var there, back error
	wg.Go(func() { toB, there = half(b, a) })
	wg.Go(func() { toA, back = half(a, b) })
	wg.Wait()
	_, _ = a.Close(), b.Close()
	if there != nil {
		return toB, toA, there
	}
	return toB, toA, back
}

// half copies one direction. After an error of the source nothing of the connection is whole, so both sides are closed. A destination that takes
// nothing more may have answered before: a server that refuses a large request does. So the other direction goes on to its own end.
func half(to, from Duplex) (int64, error) {
	buffer := buffers.Get().(*[copyBuffer]byte)
	defer buffers.Put(buffer)
	source := &source{Reader: from}
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, source, buffer[:])
	if socket, ok := from.(syscall.Conn); ok && err == nil && CutAfter(socket, uint64(n)) { //nolint:gosec // not negative
		source.failed, err = true, syscall.ECONNRESET // a write of the other direction took it
	}
	if source.failed {
		abort(to)
	}
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		abort(from)
	}
	return n, err
}

// abort closes a side so that it does not take what it has received for the whole: TCP ends with a reset.
func abort(d Duplex) {
	if tcp, ok := d.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0) // an error means that it is closed
	}
	_ = d.Close()
}

// source notes whether its reads have failed.
type source struct {
	io.Reader

	failed bool
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	s.failed = err != nil && !errors.Is(err, io.EOF)
	return n, err
}
