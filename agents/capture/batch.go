package capture

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/sonde-operator/sonde/internal/pcapng"
)

// room is what the limits still leave: packets, and bytes of the file.
type room struct {
	packets uint64
	bytes   uint64
}

// everything is the room of a capture without limits.
var everything = room{packets: math.MaxUint64, bytes: math.MaxUint64}

// batch is whole pcapng packet blocks of one interface, in runs of memory that belongs to the engine, and what they
// count to. An engine fills it; the recorder writes it.
type batch struct {
	runs      [][]byte
	size      uint64 // bytes of all runs
	packets   uint64
	bytes     uint64 // captured bytes
	truncated uint64
	first     uint64 // earliest and latest time stamp in nanoseconds since 1970
	last      uint64
}

// run adds a run, whose packets are counted by the caller.
func (b *batch) run(r []byte) {
	if len(r) > 0 {
		b.runs = append(b.runs, r)
	}
}

func (b *batch) count(size, time uint64, capLen, length uint32) {
	b.size += size
	b.packets++
	b.bytes += uint64(capLen)
	if capLen < length {
		b.truncated++
	}
	if b.first == 0 || time < b.first {
		b.first = time
	}
	b.last = max(b.last, time)
}

// countBlock counts the packet block that a run begins with and returns its length; zero if it is none.
func (b *batch) countBlock(run []byte) uint64 {
	size := blockLen(run)
	if size == 0 {
		return 0
	}
	time := uint64(binary.LittleEndian.Uint32(run[12:]))<<32 | uint64(binary.LittleEndian.Uint32(run[16:]))
	b.count(size, time, binary.LittleEndian.Uint32(run[20:]), binary.LittleEndian.Uint32(run[24:]))
	return size
}

// blockLen is the length of the packet block that a run begins with; zero where there is no whole one.
func blockLen(run []byte) uint64 {
	if len(run) < pcapng.PacketHeaderLen {
		return 0
	}
	size := uint64(binary.LittleEndian.Uint32(run[4:]))
	if size < pcapng.PacketHeaderLen || size > uint64(len(run)) {
		return 0
	}
	return size
}

// firstLen is the length of the batch's first block; zero if it has none.
func (b *batch) firstLen() uint64 {
	if len(b.runs) == 0 {
		return 0
	}
	return blockLen(b.runs[0])
}

// split divides a batch before the first packet for which left has no room. It walks the blocks, which is for the
// places where a limit or a file ends and not for every batch.
func (b *batch) split(left room) (head, rest batch) {
	for i, run := range b.runs {
		at := uint64(0)
		for at < uint64(len(run)) {
			size := blockLen(run[at:])
			if size == 0 || head.packets == left.packets || head.size+size > left.bytes {
				head.runs = slices.Clone(b.runs[:i])
				head.run(run[:at])
				rest.run(run[at:])
				rest.runs = append(rest.runs, b.runs[i+1:]...)
				rest.recount()
				return head, rest
			}
			at += head.countBlock(run[at:])
		}
	}
	head.runs = b.runs
	return head, batch{}
}

// recount counts the blocks of the runs.
func (b *batch) recount() {
	runs := b.runs
	*b = batch{runs: runs}
	for _, run := range runs {
		for size := b.countBlock(run); size > 0; size = b.countBlock(run) {
			run = run[size:]
		}
	}
}

// keepWhole finds what of a batch may stay in the file when only written bytes of it, less spare, are to be there:
// the packet blocks that lie wholly within.
func keepWhole(b *batch, written, spare uint64) batch {
	head, _ := b.split(room{packets: math.MaxUint64, bytes: written - min(written, spare)})
	return head
}
