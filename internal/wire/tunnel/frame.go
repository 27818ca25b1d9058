package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A frame is the length of its data in four bytes, and the data. Length 0 ends the direction.
const (
	frameHeader = 4
	maxFrame    = 1 << 20 // that is read
	// sentFrame makes one frame of HTTP/2.
	sentFrame = answerFrameSize - frameHeader
)

// frameReader reads the data of frames.
type frameReader struct {
	r io.Reader
	// left bytes of the current frame.
	left  int
	ended bool
}

func (f *frameReader) Read(b []byte) (int, error) {
	if f.ended {
		return 0, io.EOF
	}
	if len(b) == 0 {
		return 0, nil
	}
	if f.left == 0 {
		var header [frameHeader]byte
		if _, err := io.ReadFull(f.r, header[:]); err != nil {
			return 0, unexpected(err)
		}
		length := binary.BigEndian.Uint32(header[:])
		if length > maxFrame {
			return 0, fmt.Errorf("a frame of %d bytes, more than %d", length, maxFrame)
		}
		if length == 0 {
			f.ended = true
			return 0, io.EOF
		}
		f.left = int(length)
	}
	n, err := f.r.Read(b[:min(len(b), f.left)])
	f.left -= n
	if n > 0 {
		return n, nil
	}
	return 0, unexpected(err)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// frameWriter writes frames.
type frameWriter struct {
	w     io.Writer
	flush func() error
	buf   []byte
}

func (f *frameWriter) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 {
		n := min(len(b), sentFrame)
		// One write, so that HTTP/2 makes one frame of it.
		f.buf = binary.BigEndian.AppendUint32(f.buf[:0], uint32(n))
		f.buf = append(f.buf, b[:n]...)
		if err := f.send(f.buf); err != nil {
			return written, err
		}
		written += n
		b = b[n:]
	}
	return written, nil
}

func (f *frameWriter) end() error { return f.send(make([]byte, frameHeader)) }

func (f *frameWriter) send(b []byte) error {
	if _, err := f.w.Write(b); err != nil {
		return err
	}
	return f.flush()
}
