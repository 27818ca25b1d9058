package record

import (
	"math"
	"slices"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// room is how many packets and bytes the limits still allow.
type room struct {
	packets uint64
	bytes   uint64
}

// unlimited is the room of a capture without limits.
var unlimited = room{packets: math.MaxUint64, bytes: math.MaxUint64}

// Batch is whole pcapng packet blocks in runs of memory, and their counts. A backend fills it and owns the memory; the
// Recorder writes it.
type Batch struct {
	runs    [][]byte
	size    uint64 // bytes of all runs
	packets uint64
	tallies []tally // counts by interface
	last    int     // index of the tally that was used last
}

// tally is the counts of one interface's packets.
type tally struct {
	iface     uint32 // its number in the file
	packets   uint64
	bytes     uint64 // captured bytes
	truncated uint64
	first     uint64 // earliest and latest time stamp in nanoseconds since 1970
	latest    uint64
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { *b = Batch{runs: b.runs[:0], tallies: b.tallies[:0]} }

// Append adds a run of blocks. The caller counts its packets by Count.
func (b *Batch) Append(run []byte) {
	if len(run) > 0 {
		b.runs = append(b.runs, run)
	}
}

// Size is the length of all blocks in bytes.
func (b *Batch) Size() uint64 { return b.size }

// Packets is the number of packets.
func (b *Batch) Packets() uint64 { return b.packets }

// Runs are the runs of memory with the blocks.
func (b *Batch) Runs() [][]byte { return b.runs }

// tallyOf returns the tally of an interface. Consecutive packets mostly belong to one interface, and a batch has few interfaces.
func (b *Batch) tallyOf(iface uint32) *tally {
	if b.last < len(b.tallies) && b.tallies[b.last].iface == iface {
		return &b.tallies[b.last]
	}
	for b.last = range b.tallies {
		if b.tallies[b.last].iface == iface {
			return &b.tallies[b.last]
		}
	}
	b.last = len(b.tallies)
	b.tallies = append(b.tallies, tally{iface: iface})
	return &b.tallies[b.last]
}

// Count counts one packet block of size bytes. time is in nanoseconds since 1970; length is the packet's length on the
// wire.
func (b *Batch) Count(iface uint32, size, time uint64, capLen, length uint32) {
	b.size += size
	b.packets++
	t := b.tallyOf(iface)
	t.packets++
	t.bytes += uint64(capLen)
	if capLen < length {
		t.truncated++
	}
	if t.first == 0 || time < t.first {
		t.first = time
	}
	t.latest = max(t.latest, time)
}

// countBlock counts the packet block at the beginning of run and returns its length; zero if there is none.
func (b *Batch) countBlock(run []byte) uint64 {
	size := blockLen(run)
	if size > 0 {
		h := pcapng.PacketHeaderOf(run)
		b.Count(h.Interface, size, h.Time(), h.CapLen, h.Length)
	}
	return size
}

// blockLen is the length of the packet block at the beginning of run; zero if there is no complete one.
func blockLen(run []byte) uint64 {
	if len(run) < pcapng.PacketHeaderLen {
		return 0
	}
	size := uint64(pcapng.PacketHeaderOf(run).Size)
	if size < pcapng.PacketHeaderLen || size > uint64(len(run)) {
		return 0
	}
	return size
}

// firstLen is the length of the batch's first block; zero if it has none.
func (b *Batch) firstLen() uint64 {
	if len(b.runs) == 0 {
		return 0
	}
	return blockLen(b.runs[0])
}

// split divides a batch before the first packet that exceeds left. It walks all blocks, so use it only where a limit or
// a file ends.
func (b *Batch) split(left room) (head, rest Batch) {
	for i, run := range b.runs {
		at := uint64(0)
		for at < uint64(len(run)) {
			size := blockLen(run[at:])
			if size == 0 || head.packets == left.packets || head.size+size > left.bytes {
				head.runs = slices.Clone(b.runs[:i])
				head.Append(run[:at])
				rest.Append(run[at:])
				rest.runs = append(rest.runs, b.runs[i+1:]...)
				rest.recount()
				return head, rest
			}
			at += head.countBlock(run[at:])
		}
	}
	head.runs = b.runs
	return head, Batch{}
}

// recount counts the blocks of the runs.
func (b *Batch) recount() {
	*b = Batch{runs: b.runs}
	for _, run := range b.runs {
		for size := b.countBlock(run); size > 0; size = b.countBlock(run) {
			run = run[size:]
		}
	}
}
