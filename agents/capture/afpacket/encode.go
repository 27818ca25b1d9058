package afpacket

import (
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// encoder turns ring blocks into pcapng in place.
type encoder struct {
	iface   uint32
	snapLen uint32
	tags    bool // link type has room for VLAN tags
}

// encode rewrites block to pcapng packet blocks and describes them in out, whose memory it reuses. It returns how many
// packets have no valid kernel header; that has never happened. Short packets move down to the end of the previous one.
// Long ones stay and begin a new run, unless the block's end leaves no room for the trailer. The output for a packet
// ends at most MaxPacketTrailerLen bytes after its data: within the next frame's header, which encode has already read.
func (e *encoder) encode(block []byte, out *record.Batch) (lost uint64) {
	out.Reset()
	h := blockHeader(block)
	n := h.Num_pkts
	var f, next frame
	ok := n > 0 && readFrame(block, uint64(h.Offset_to_first_pkt), &f)
	var start uint32 // start of the current run
	if ok {
		start = h.Offset_to_first_pkt
	}
	cur := start // end of the run
	for i := range n {
		if !ok {
			lost = uint64(n - i)
			break
		}
		if i+1 < n {
			ok = f.readNext(block, &next)
		}
		if f.vlan && e.tags {
			f.insertTag(block)
		}
		f.capLen = min(f.capLen, e.snapLen)
		if f.capLen < slideLimit || int(f.data+f.capLen)+pcapng.MaxPacketTrailerLen > len(block) {
			copy(block[cur+pcapng.PacketHeaderLen:], block[f.data:f.data+f.capLen])
		} else if at := f.data - pcapng.PacketHeaderLen; at != cur {
			out.Append(block[start:cur])
			start, cur = at, at
		}
		cur = e.wrap(block, cur, &f)
		out.Count(e.iface, uint64(pcapng.PacketLen(int(f.capLen))), f.time, f.capLen, f.length)
		f = next
	}
	out.Append(block[start:cur])
	return lost
}

// wrap writes header and trailer around the packet at cur+PacketHeaderLen and returns the end.
func (e *encoder) wrap(block []byte, cur uint32, f *frame) uint32 {
	pcapng.PutPacketHeader(block[cur:], e.iface, f.time, f.capLen, f.length)
	end := cur + pcapng.PacketHeaderLen + f.capLen
	return end + uint32(pcapng.PutPacketTrailer(block[end:], f.capLen, f.flags()))
}
