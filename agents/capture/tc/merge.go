package tc

import (
	"errors"
	"time"

	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// maxBatch and maxRuns bound the bytes and runs of a batch. After each batch its memory goes back to the rings.
const (
	maxBatch = 256 << 10
	maxRuns  = 4096
)

// errIncomplete ends a capture, because it is unknown where the next block of the ring begins.
var errIncomplete = errors.New("a packet in a ring is incomplete: please report this with the node's kernel version")

// merge gives all packets up to a time, in nanoseconds since 1970, to the recorder in order of time.
func (b *Backend) merge(until uint64) (err error) {
	rings := b.programs.rings
	if len(b.heads) != len(rings) {
		b.heads = make([]uint64, len(rings))
	}
	for i, r := range rings {
		if b.heads[i], err = b.peek(r, until); err != nil {
			return err
		}
	}
	for {
		first, others := ring.Earliest(b.heads, until)
		if first < 0 {
			break
		}
		if b.heads[first], err = b.readRun(rings[first], others, until); err != nil {
			break
		}
		if b.batch.Size() >= min(maxBatch, uint64(b.programs.size/4)) || len(b.batch.Runs()) >= maxRuns {
			b.writeBatch()
		}
	}
	b.writeBatch()
	return err
}

// clockStep is how far in the future a block's time may be. If it is later, the clock was set back since the block was
// written, and the block is due now.
const clockStep = uint64(time.Second)

// due returns the time by which a block is ordered among others; zero if it is not due up to until.
func due(at, until uint64) uint64 {
	switch {
	case at <= until:
		return max(at, 1)
	case at-until > clockStep:
		return max(until, 1)
	default:
		return 0
	}
}

// peek returns when the next block of a ring is due; zero if there is none up to until.
func (b *Backend) peek(r *ring.Ring, until uint64) (uint64, error) {
	if !r.Ready() {
		return 0, nil
	}
	h := b.blockAt(r.Rest())
	if h == nil {
		return 0, errIncomplete
	}
	return due(h.Time(), until), nil
}

// blockAt returns the header of the block at the beginning of rest; nil if there is no complete packet block.
func (b *Backend) blockAt(rest []byte) *pcapng.PacketHeader {
	if len(rest) < pcapng.PacketHeaderLen {
		return nil
	}
	h := pcapng.PacketHeaderOf(rest)
	if !h.IsPacket() || h.Size < uint32(pcapng.PacketLen(0)) || uint64(h.Size) > uint64(len(rest)) || uint64(h.Interface) >= uint64(b.cfg.Recorder.NumInterfaces()) {
		return nil
	}
	return h
}

// readRun reads contiguous blocks of one ring up to the time others: at least one, and about maxBatch bytes at most. It
// returns when the next block is due.
func (b *Backend) readRun(r *ring.Ring, others, until uint64) (uint64, error) {
	rest, left := r.Rest(), r.Left()
	size := uint64(0)
	for size < left && size < maxBatch {
		h := b.blockAt(rest[size:])
		if h == nil {
			b.finishRun(r, rest[:size])
			return 0, errIncomplete
		}
		at := h.Time()
		if when := due(at, until); size > 0 && (when == 0 || when > others) {
			b.finishRun(r, rest[:size])
			return when, nil
		}
		b.batch.Count(h.Interface, uint64(h.Size), at, h.CapLen, h.Length)
		size += uint64(h.Size)
	}
	b.finishRun(r, rest[:size])
	return b.peek(r, until)
}

func (b *Backend) finishRun(r *ring.Ring, run []byte) {
	b.batch.Append(run)
	r.Skip(uint64(len(run)))
}

// writeBatch gives the batch to the recorder, and its memory back to the rings.
func (b *Backend) writeBatch() {
	if b.batch.Packets() > 0 {
		b.cfg.Recorder.Write(&b.batch)
		b.cfg.Recorder.PublishBatch(&b.batch)
		b.batch.Reset()
	}
	for _, r := range b.programs.rings {
		r.Free()
	}
}
