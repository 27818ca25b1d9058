package capture

import (
	"errors"
	"time"

	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// handOver is how many bytes, and runs, are handed to the recorder at a time, before rings are free again.
const (
	handOver     = 256 << 10
	handOverRuns = 4096
)

// errNotWhole ends a capture: nobody knows where the next block of a ring begins.
var errNotWhole = errors.New("a packet in a ring is not whole: please report this, with the node's kernel version")

// merge hands all packets up to a time to the recorder, in their order.
func (b *blocks) merge(until uint64) (err error) {
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
		if b.heads[first], err = b.takeRun(rings[first], others, until); err != nil {
			break
		}
		if b.batch.size >= min(handOver, uint64(b.programs.size/4)) || len(b.batch.runs) >= handOverRuns {
			b.hand()
		}
	}
	b.hand()
	return err
}

// stepped is by how much a block's time may lie behind the present: where it does by more, the clock was set back since it
// was written, and it is not waited for.
const stepped = uint64(time.Second)

// due is when a block is to be taken, in the order of others; zero if that is after until.
func due(at, until uint64) uint64 {
	switch {
	case at <= until:
		return max(at, 1)
	case at-until > stepped:
		return max(until, 1)
	default:
		return 0
	}
}

// peek is when the next block of a ring is to be taken; zero if there is none, or not yet.
func (b *blocks) peek(r *ring.Ring, until uint64) (uint64, error) {
	if !r.Ready() {
		return 0, nil
	}
	h := b.blockAt(r.Rest())
	if h == nil {
		return 0, errNotWhole
	}
	return due(h.Time(), until), nil
}

// blockAt is the header of the whole block that memory begins with; nil if it is none.
func (b *blocks) blockAt(rest []byte) *pcapng.PacketHeader {
	if len(rest) < pcapng.PacketHeaderLen {
		return nil
	}
	h := pcapng.PacketHeaderOf(rest)
	if !h.IsPacket() || h.Size < uint32(pcapng.PacketLen(0)) || uint64(h.Size) > uint64(len(rest)) || uint64(h.Interface) >= uint64(len(b.rec.tracks)) {
		return nil
	}
	return h
}

// takeRun takes blocks of one ring up to a time, one at least, as far as they lie in one piece and are not too many; it
// returns when the next is to be taken.
func (b *blocks) takeRun(r *ring.Ring, others, until uint64) (uint64, error) {
	rest, left := r.Rest(), r.Left()
	size := uint64(0)
	for size < left && size < handOver {
		h := b.blockAt(rest[size:])
		if h == nil {
			b.finishRun(r, rest[:size])
			return 0, errNotWhole
		}
		at := h.Time()
		if when := due(at, until); size > 0 && (when == 0 || when > others) {
			b.finishRun(r, rest[:size])
			return when, nil
		}
		b.batch.count(h.Interface, uint64(h.Size), at, h.CapLen, h.Length)
		size += uint64(h.Size)
	}
	b.finishRun(r, rest[:size])
	return b.peek(r, until)
}

func (b *blocks) finishRun(r *ring.Ring, run []byte) {
	b.batch.run(run)
	r.Skip(uint64(len(run)))
}

// hand gives the batch to the recorder, and its memory back to the rings.
func (b *blocks) hand() {
	if b.batch.packets > 0 {
		b.rec.write(&b.batch)
		for i := range b.batch.tallies {
			b.rec.publishTrack(b.rec.tracks[b.batch.tallies[i].iface])
		}
		b.batch.reset()
	}
	for _, r := range b.programs.rings {
		r.Free()
	}
}
