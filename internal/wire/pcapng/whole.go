package pcapng

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
)

// Glance is what Walk reads of a block. Captured and Length, in bytes, are those of a packet, and zero of other blocks.
type Glance struct {
	Packet           bool
	Captured, Length uint32
}

// Walk reads whole blocks until the end, or until bytes that are no block in the writer's order, and returns how many
// bytes they have. visit is called for each; it may be nil. Only what cannot be read is an error.
func Walk(from io.Reader, visit func(Glance)) (int64, error) {
	r := bufio.NewReaderSize(from, 256<<10)
	var end int64
	for {
		g, size, err := glance(r)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return end, nil
		}
		if err != nil {
			return end, fmt.Errorf("read capture file: %w", err)
		}
		end += int64(size)
		if visit != nil {
			visit(g)
		}
	}
}

// glance reads one whole block. What is none is where the file ends: io.EOF.
func glance(r *bufio.Reader) (g Glance, size uint32, err error) {
	head, err := r.Peek(PacketHeaderLen)
	if len(head) < blockOverhead {
		return g, 0, cmp.Or(err, io.EOF)
	}
	size = order.Uint32(head[4:])
	if size < blockOverhead || size%4 != 0 || size > maxBlockLen {
		return g, 0, io.EOF
	}
	if order.Uint32(head) == typePacket {
		if len(head) < PacketHeaderLen || size < PacketHeaderLen+4 {
			return g, 0, io.EOF
		}
		g = Glance{Packet: true, Captured: order.Uint32(head[20:]), Length: order.Uint32(head[24:])}
		if g.Captured > size-PacketHeaderLen-4 {
			return g, 0, io.EOF
		}
	}
	if _, err := r.Discard(int(size) - 4); err != nil {
		return g, 0, fmt.Errorf("read block: %w", err)
	}
	var tail [4]byte
	if _, err := io.ReadFull(r, tail[:]); err != nil {
		return g, 0, fmt.Errorf("read block: %w", err)
	}
	if order.Uint32(tail[:]) != size {
		return g, 0, io.EOF
	}
	return g, size, nil
}

// Whole returns how many bytes of a file end with a whole block: at most size, at least from, where a block is known
// to end. A writer that was killed, or is at work, may have left a part of a block; what reads the file up to here
// never sees it. An error of reading ends the walk, too.
func Whole(f io.ReaderAt, from, size int64) int64 {
	n, _ := Walk(io.NewSectionReader(f, from, max(0, size-from)), nil)
	return from + n
}
