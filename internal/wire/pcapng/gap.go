package pcapng

import "fmt"

// typeGap is a block type for local use, which other readers skip (draft-ietf-opsawg-pcapng, section 10.1).
const typeGap = 0x80534F4E

// Gap stands in a stream for a part of the file that is left out because its reader was slow. It is never in a file. One of zero bytes is
// a sign of life.
type Gap struct {
	// Bytes of the file that are left out, and the packets in them.
	Bytes, Packets uint64
	// Others are all blocks of this part that are no packets: interfaces and statistics. The packets after the gap need them.
	Others []byte
}

// AppendGap appends a gap.
func AppendGap(b []byte, g *Gap) []byte {
	start := len(b)
	b = order.AppendUint32(b, typeGap)
	b = order.AppendUint32(b, 0)
	b = order.AppendUint64(b, g.Bytes)
	b = order.AppendUint64(b, g.Packets)
	b = append(b, g.Others...)
	return finish(b, start, len(b))
}

// ParseGap returns the gap that a whole block is; nil if the block is another one.
func ParseGap(block []byte) (*Gap, error) {
	if len(block) < blockOverhead || order.Uint32(block) != typeGap {
		return nil, nil
	}
	const fixed = 8 + 16
	if len(block) < fixed+4 {
		return nil, fmt.Errorf("%w: gap of %d bytes", ErrFormat, len(block))
	}
	return &Gap{Bytes: order.Uint64(block[8:]), Packets: order.Uint64(block[16:]), Others: block[fixed : len(block)-4]}, nil
}

// SplitBlocks is a bufio.SplitFunc for whole blocks in the writer's byte order. A part of a block at the end is dropped.
func SplitBlocks(data []byte, _ bool) (advance int, block []byte, err error) {
	if len(data) < blockOverhead {
		return 0, nil, nil
	}
	size := order.Uint32(data[4:])
	if size < blockOverhead || size%4 != 0 || size > maxBlockLen {
		return 0, nil, fmt.Errorf("%w: block length %d (12 to %d, in fours)", ErrFormat, size, maxBlockLen)
	}
	if uint32(len(data)) < size {
		return 0, nil, nil
	}
	return int(size), data[:size], nil
}

// MaxBlockLen is the length of the longest block that is read, in bytes.
const MaxBlockLen = maxBlockLen
