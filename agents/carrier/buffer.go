package carrier

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// Sizes of buffers in bytes. An idle connection holds small ones.
const (
	smallBuffer = 4 << 10
	largeBuffer = maxHead
	// maxLarge buffers are in use at a time, 16 MiB. At most maxGrown of them are there to copy faster: a copy may wait for bytes as long as
	// its connection exists, and long heads need the others.
	maxLarge = 256
	maxGrown = maxLarge / 2
)

// errNoRoom: the buffer is full, and all large buffers are in use.
var errNoRoom = errors.New("no memory for a longer head")

var (
	smallBuffers = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}
	largeInUse   atomic.Int32
)

// takeLarge returns nil if more large buffers than most would be in use.
func takeLarge(most int32) *[largeBuffer]byte {
	if largeInUse.Add(1) > most {
		largeInUse.Add(-1)
		return nil
	}
	return largeBuffers.Get().(*[largeBuffer]byte)
}

// buffer holds bytes that were read and not yet written.
type buffer struct {
	b     []byte
	r, w  int
	small *[smallBuffer]byte
	large *[largeBuffer]byte
	// head: the large buffer was taken for a long head. It goes back when all of the head was written.
	head bool
	// full: the last read has filled the buffer, so that more is to come.
	full bool
}

func (b *buffer) bytes() []byte { return b.b[b.r:b.w] }
func (b *buffer) len() int      { return b.w - b.r }
func (b *buffer) skip(n int)    { b.r += n }

// fill reads once. A buffer that is full grows, or moves its bytes to the front. It has room for maxHead bytes, or returns errNoRoom.
func (b *buffer) fill(from io.Reader) error {
	b.makeRoom()
	if b.w == len(b.b) {
		return errNoRoom
	}
	n, err := from.Read(b.b[b.w:])
	b.w += n
	b.full = b.w == len(b.b)
	if n > 0 {
		return nil
	}
	return err
}

func (b *buffer) makeRoom() {
	if b.r == b.w {
		if b.large != nil && b.w > 0 && (b.head || b.w < smallBuffer) { // the last read was short: give the memory back
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
		if large := takeLarge(maxLarge); large != nil {
			b.w = copy(large[:], b.b[b.r:b.w])
			b.release()
			b.large, b.b, b.head = large, large[:], true
		}
	}
}

// grow makes the next read a large one, if the last one has filled the buffer and all of it was written.
func (b *buffer) grow() {
	if b.large != nil || b.len() != 0 || !b.full {
		return
	}
	if large := takeLarge(maxGrown); large != nil {
		b.release()
		b.large, b.b, b.r, b.w = large, large[:], 0, 0
	}
}

// rest gives an empty large buffer back, before a wait between two messages.
func (b *buffer) rest() {
	if b.large != nil && b.len() == 0 {
		b.free()
	}
}

func (b *buffer) release() {
	if b.small != nil {
		smallBuffers.Put(b.small)
	}
	if b.large != nil {
		largeBuffers.Put(b.large)
		largeInUse.Add(-1)
	}
	b.small, b.large, b.b, b.head = nil, nil, nil, false
}

// free gives the memory back. The buffer is empty after it, and can be used again.
func (b *buffer) free() {
	b.release()
	b.r, b.w = 0, 0
}
