package pcapng

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
)

// BlockInfo has the fields that Walk reads. Captured and Length of a packet are in bytes; they are zero for other blocks.
type BlockInfo struct {
	Packet           bool
	Captured, Length uint32
	// Size of the whole block, in bytes.
	Size uint32
}

// Walk reads complete blocks until the end, or until bytes that are no block in the writer's byte order, and returns the
// length of the blocks in bytes. It calls visit, which may be nil, for each. Only an error of reading is an error.
func Walk(from io.Reader, visit func(BlockInfo)) (int64, error) {
	r := bufio.NewReaderSize(from, 256<<10)
	var end int64
	for {
		info, size, err := readInfo(r)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return end, nil
		}
		if err != nil {
			return end, fmt.Errorf("read capture file: %w", err)
		}
		end += int64(size)
		if visit != nil {
			info.Size = size
			visit(info)
		}
	}
}

// CompleteBlocks returns the length of the complete blocks at the beginning of b, as Walk does, and the number of packets in them. next is
// the length of the block after them of which b has the beginning; zero if there is none, or if it is no block.
func CompleteBlocks(b []byte) (length int, packets uint64, next int) {
	for {
		rest := b[length:]
		info, size := parseInfo(rest[:min(len(rest), PacketHeaderLen)])
		if size == 0 || int64(size) > int64(len(rest)) {
			return length, packets, int(size)
		}
		if order.Uint32(rest[size-4:]) != size {
			return length, packets, 0
		}
		length += int(size)
		if info.Packet {
			packets++
		}
	}
}

// parseInfo reads the beginning of a block. size is zero if it is too short for that, or no block.
func parseInfo(head []byte) (info BlockInfo, size uint32) {
	if len(head) < blockOverhead {
		return info, 0
	}
	size = order.Uint32(head[4:])
	if size < blockOverhead || size%4 != 0 || size > maxBlockLen {
		return info, 0
	}
	if order.Uint32(head) == typePacket {
		if len(head) < PacketHeaderLen || size < PacketHeaderLen+4 {
			return info, 0
		}
		info = BlockInfo{Packet: true, Captured: order.Uint32(head[20:]), Length: order.Uint32(head[24:])}
		if info.Captured > size-PacketHeaderLen-4 {
			return BlockInfo{}, 0
		}
	}
	return info, size
}

// readInfo reads one complete block. For anything else it returns io.EOF.
func readInfo(r *bufio.Reader) (info BlockInfo, size uint32, err error) {
	head, err := r.Peek(PacketHeaderLen)
	if len(head) < blockOverhead {
		return info, 0, cmp.Or(err, io.EOF)
	}
	if info, size = parseInfo(head); size == 0 {
		return info, 0, io.EOF
	}
	if _, err := r.Discard(int(size) - 4); err != nil {
		return info, 0, fmt.Errorf("read block: %w", err)
	}
	var tail [4]byte
	if _, err := io.ReadFull(r, tail[:]); err != nil {
		return info, 0, fmt.Errorf("read block: %w", err)
	}
	if order.Uint32(tail[:]) != size {
		return info, 0, io.EOF
	}
	return info, size, nil
}

// CompleteLen returns the length of a file up to the end of its last complete block: at most size, at least from, where a
// block is known to end. A writer that is running or was killed may have left a part of a block after it. An error of
// reading ends the search, too.
func CompleteLen(f io.ReaderAt, from, size int64) int64 {
	n, _ := Walk(io.NewSectionReader(f, from, max(0, size-from)), nil)
	return from + n
}
