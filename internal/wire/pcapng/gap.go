package pcapng

import (
	"fmt"
	"strings"
)

// Block types for local use, which other readers skip (draft-ietf-opsawg-pcapng, section 10.1). Blocks of typeUntil and typeFile are
// within a gap.
const (
	typeGap   = 0x80534F4E
	typeUntil = 0x80534F55
	typeFile  = 0x80534F46
)

const (
	// untilLen is the length of a block of typeUntil, in bytes.
	untilLen = blockOverhead + 8
	// fileLen is the least length of a block of typeFile: an offset, and a name, which zeros fill to a multiple of four.
	fileLen = blockOverhead + 8
	// maxFileName bounds that name (NAME_MAX of Linux).
	maxFileName = 255
)

// Gap stands in a stream for a part of the file that is left out because its reader was slow. It is never in a file. One of zero bytes is
// a sign of life.
type Gap struct {
	// Bytes of the file that are left out, and the packets in them.
	Bytes, Packets uint64
	// Until, if not zero, is a time in nanoseconds since 1970: all packets up to it were sent before. Older readers skip it.
	Until uint64
	// File, if not empty, names the file of a ring that the stream continues with after the gap, from the byte At on. A gap before it may
	// have packets of files that exist no more, whose bytes are not known. Older readers skip both.
	File string
	At   uint64
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
	if g.Until != 0 {
		at := len(b)
		b = order.AppendUint32(b, typeUntil)
		b = order.AppendUint32(b, 0)
		b = order.AppendUint64(b, g.Until)
		b = finish(b, at, len(b))
	}
	if g.File != "" {
		at := len(b)
		b = order.AppendUint32(b, typeFile)
		b = order.AppendUint32(b, 0)
		b = order.AppendUint64(b, g.At)
		b = append(b, g.File...)
		b = append(b, make([]byte, -len(g.File)&3)...)
		b = finish(b, at, len(b))
	}
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
	g := &Gap{Bytes: order.Uint64(block[8:]), Packets: order.Uint64(block[16:]), Others: block[fixed : len(block)-4]}
	if len(g.Others) >= untilLen && order.Uint32(g.Others) == typeUntil && order.Uint32(g.Others[4:]) == untilLen {
		g.Until, g.Others = order.Uint64(g.Others[8:]), g.Others[untilLen:]
	}
	g.parseFile()
	return g, nil
}

// parseFile takes the file from the beginning of the other blocks.
func (g *Gap) parseFile() {
	if len(g.Others) < fileLen || order.Uint32(g.Others) != typeFile {
		return
	}
	size := order.Uint32(g.Others[4:])
	if size < fileLen || size > fileLen+maxFileName+1 || uint64(size) > uint64(len(g.Others)) || size%4 != 0 {
		return
	}
	g.At = order.Uint64(g.Others[8:])
	g.File = strings.TrimRight(string(g.Others[16:size-4]), "\x00")
	g.Others = g.Others[size:]
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

// IsPacket reports whether a whole block is a packet.
func IsPacket(block []byte) bool {
	return len(block) >= blockOverhead && order.Uint32(block) == typePacket
}

// MaxBlockLen is the length of the longest block that is read, in bytes.
const MaxBlockLen = maxBlockLen
