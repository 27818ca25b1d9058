package carrier

import (
	"io"
	"sync"
)

// Sizes of buffers in bytes. An idle connection holds small ones.
const (
	smallBuffer = 4 << 10
	largeBuffer = maxHead
)

var (
	smallBuffers = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}
)

// buffer holds bytes that were read and not yet written.
type buffer struct {
	b     []byte
	r, w  int
	small *[smallBuffer]byte
	large *[largeBuffer]byte
}

func (b *buffer) bytes() []byte { return b.b[b.r:b.w] }
func (b *buffer) len() int      { return b.w - b.r }
func (b *buffer) skip(n int)    { b.r += n }

// fill reads once. A buffer that is full grows, or moves its bytes to the front; it has room for maxHead bytes.
func (b *buffer) fill(from io.Reader) error {
	b.makeRoom()
	n, err := from.Read(b.b[b.w:])
	b.w += n
	if n > 0 {
		return nil
	}
	return err
}

func (b *buffer) makeRoom() {
	if b.r == b.w {
		if b.large != nil && b.w < smallBuffer { // the last read was short: give the memory back
			b.free()
		}
		b.r, b.w = 0, 0
	}
	switch {
	case b.b == nil:
		b.small = smallBuffers.Get().(*[smallBuffer]byte)
		b.b = b.small[:]
	case b.w < len(b.b):
	case b.r > 0:
		b.w = copy(b.b, b.b[b.r:b.w])
		b.r = 0
	case b.large == nil:
		large := largeBuffers.Get().(*[largeBuffer]byte)
		b.w = copy(large[:], b.b[b.r:b.w])
		b.release()
		b.large, b.b = large, large[:]
	}
}

// grow makes the next read a large one.
func (b *buffer) grow() {
	if b.large == nil && b.len() == 0 {
		b.release()
		b.large = largeBuffers.Get().(*[largeBuffer]byte)
		b.b, b.r, b.w = b.large[:], 0, 0
	}
}

func (b *buffer) release() {
	if b.small != nil {
		smallBuffers.Put(b.small)
	}
	if b.large != nil {
		largeBuffers.Put(b.large)
	}
	b.small, b.large, b.b = nil, nil, nil
}

// free gives the memory back. The buffer is empty after it, and can be used again.
func (b *buffer) free() {
	b.release()
	b.r, b.w = 0, 0
}
