package pcapng

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxBlockLen bounds the memory that a foreign file can claim, in bytes. The largest block that Sonde writes is a packet of
// 256 KiB; the format's own advice is 16 MiB, too.
const maxBlockLen = 16 << 20

var (
	// ErrTruncated means that the stream ended within a block: its writer is still running, or was killed. All blocks before
	// were returned. errors.Is finds io.ErrUnexpectedEOF as well.
	ErrTruncated = errors.New("pcapng stream ends within a block")
	// ErrFormat means that the stream is not pcapng, or is damaged.
	ErrFormat = errors.New("not a valid pcapng stream")
)

// BlockError is an error of a stream with its offset.
type BlockError struct {
	// Offset is where the unreadable block begins, in bytes. Up to there the stream has complete blocks.
	Offset int64
	Err    error
}

func (e *BlockError) Error() string { return fmt.Sprintf("at byte %d: %v", e.Offset, e.Err) }

// Unwrap makes errors.Is find ErrTruncated, ErrFormat and io.ErrUnexpectedEOF.
func (e *BlockError) Unwrap() []error {
	if errors.Is(e.Err, ErrTruncated) {
		return []error{e.Err, io.ErrUnexpectedEOF}
	}
	return []error{e.Err}
}

// Reader reads the blocks of a stream in order. It does not seek, and it keeps one block in memory.
type Reader struct {
	parser

	r      *bufio.Reader
	offset int64 // of the next block
	buf    []byte
}

// NewReader reads from r, which may be anything from a file to a connection.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 1<<16)} }

// Offset returns how many bytes of complete blocks were read.
func (r *Reader) Offset() int64 { return r.offset }

// Interfaces returns the interfaces of the current section so far; a packet's Interface is an index into it.
func (r *Reader) Interfaces() []*Interface { return r.ifaces }

// Next returns the next block of an interpreted type. At the end it returns io.EOF; all other errors are
// *BlockError around ErrTruncated, ErrFormat or the source's own error.
func (r *Reader) Next() (Block, error) {
	for {
		typ, body, err := r.block()
		if err == io.EOF { //nolint:errorlint // block returns the bare io.EOF only at the end between two blocks
			return nil, io.EOF
		}
		var b Block
		if err == nil {
			b, err = r.parse(typ, body)
		}
		if err != nil {
			return nil, &BlockError{Offset: r.offset, Err: err}
		}
		r.offset += int64(len(body)) + blockOverhead
		if b != nil {
			return b, nil
		}
	}
}

// block reads one block and returns its body, which is valid until the next call.
func (r *Reader) block() (typ uint32, body []byte, err error) {
	var head [8]byte
	if n, err := io.ReadFull(r.r, head[:]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return 0, nil, io.EOF
		}
		return 0, nil, asTruncated(err)
	}
	typ = order.Uint32(head[:]) // a section's type is the same in both byte orders
	if typ == typeSection {
		if err := r.setOrder(); err != nil {
			return 0, nil, err
		}
	}
	if r.order == nil {
		return 0, nil, fmt.Errorf("%w: it does not begin with a section header", ErrFormat)
	}
	typ = r.order.Uint32(head[:])
	total := r.order.Uint32(head[4:])
	if total < blockOverhead || total%4 != 0 || total > maxBlockLen {
		return 0, nil, fmt.Errorf("%w: block length %d (12 to %d, in fours)", ErrFormat, total, maxBlockLen)
	}
	rest, err := r.readBytes(int(total) - len(head))
	if err != nil {
		return 0, nil, err
	}
	body = rest[:len(rest)-4]
	if again := r.order.Uint32(rest[len(body):]); again != total {
		return 0, nil, fmt.Errorf("%w: block length %d at its start and %d at its end", ErrFormat, total, again)
	}
	return typ, body, nil
}

// readBytes reads n bytes. It allocates memory as the bytes arrive, so that a wrong length cannot claim it.
func (r *Reader) readBytes(n int) ([]byte, error) {
	const step = 1 << 20
	r.buf = r.buf[:0]
	for len(r.buf) < n {
		from := len(r.buf)
		to := min(n, from+step)
		if cap(r.buf) < to {
			r.buf = append(r.buf[:from], make([]byte, to-from)...)
		}
		r.buf = r.buf[:to]
		if _, err := io.ReadFull(r.r, r.buf[from:]); err != nil {
			return nil, asTruncated(err)
		}
	}
	return r.buf, nil
}

// setOrder peeks at the byte order magic of a section.
func (r *Reader) setOrder() error {
	magic, err := r.r.Peek(4)
	if err != nil {
		return asTruncated(err)
	}
	switch uint32(byteOrderMagic) {
	case binary.LittleEndian.Uint32(magic):
		r.order = binary.LittleEndian
	case binary.BigEndian.Uint32(magic):
		r.order = binary.BigEndian
	default:
		return fmt.Errorf("%w: section with byte order magic % x", ErrFormat, magic)
	}
	return nil
}

// asTruncated turns the end of the stream within a block into ErrTruncated.
func asTruncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return fmt.Errorf("read block: %w", err)
}
