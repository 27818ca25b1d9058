package capture

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

const (
	// slideLimit is the captured length from which on a packet is left where it is, with the header written before
	// and the trailer behind it; shorter ones are moved down to the end of the one before, so that they share one
	// run. Measured: moving is cheaper than a further element of writev(2) up to about 1000 bytes and no dearer at
	// 1500, as the write finds the bytes in the cache; GSO frames of up to 64 KiB are another matter.
	slideLimit = 2048
	// frameOverhead is the least distance from a frame's start to its packet: header and address, aligned, and at
	// least 14 bytes (tpacket_rcv in net/packet/af_packet.c). It must hold what the packet before may have
	// written beyond its own end, the new packet's header and a VLAN tag.
	frameOverhead = 80
	frameHdrLen   = uint32(unsafe.Sizeof(unix.Tpacket3Hdr{}))
	addrLen       = uint32(unsafe.Sizeof(unix.RawSockaddrLinklayer{}))
	frameAlign    = 8
	vlanTagLen    = 4
	vlanOffset    = 12 // behind the two MAC addresses
)

// The room before a packet is enough for all that is written there.
const _ = uint(frameOverhead - pcapng.MaxPacketTrailerLen - pcapng.PacketHeaderLen - vlanTagLen)

// frame is the kernel's header of one packet in a ring block, copied out, as its memory is about to be overwritten.
type frame struct {
	next    uint64 // offset of the next frame in the block
	data    uint32 // offset of the packet in the block
	capLen  uint32
	length  uint32
	time    uint64
	vlan    bool
	tpid    uint16
	tci     uint16
	pktType uint8
}

// readFrame reads the frame at offset off of a block; false if it does not lie within the block.
func readFrame(b []byte, off uint64, f *frame) bool {
	if off%frameAlign != 0 || off+uint64(frameHdrLen+addrLen) > uint64(len(b)) {
		return false
	}
	h := (*unix.Tpacket3Hdr)(unsafe.Pointer(&b[off]))
	a := (*unix.RawSockaddrLinklayer)(unsafe.Pointer(&b[off+uint64(frameHdrLen)]))
	f.next, f.data = off+uint64(h.Next_offset), uint32(off)+uint32(h.Mac)
	f.capLen, f.length = h.Snaplen, h.Len
	f.time = uint64(h.Sec)*1e9 + uint64(h.Nsec)
	f.pktType = a.Pkttype
	f.vlan = h.Status&unix.TP_STATUS_VLAN_VALID != 0
	if f.vlan {
		f.tci, f.tpid = uint16(h.Hv1.Vlan_tci), unix.ETH_P_8021Q
		if h.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			f.tpid = h.Hv1.Vlan_tpid
		}
	}
	return h.Mac >= frameOverhead && uint64(f.data)+uint64(f.capLen) <= uint64(len(b))
}

// readNext reads the frame after f; false if it begins before f's packet ends.
func (f *frame) readNext(b []byte, next *frame) bool {
	return f.next >= uint64(f.data)+uint64(f.capLen) && readFrame(b, f.next, next)
}

// insertTag puts the VLAN tag, which the kernel keeps beside the packet, back to where it was on the wire.
func (f *frame) insertTag(b []byte) {
	if f.capLen < vlanOffset {
		return
	}
	p := b[f.data-vlanTagLen:]
	copy(p, p[vlanTagLen:vlanTagLen+vlanOffset])
	binary.BigEndian.PutUint16(p[vlanOffset:], f.tpid)
	binary.BigEndian.PutUint16(p[vlanOffset+2:], f.tci)
	f.data -= vlanTagLen
	f.capLen += vlanTagLen
	f.length += vlanTagLen
}

// flags translates sll_pkttype (packet(7)).
func (f *frame) flags() pcapng.Flags {
	switch f.pktType {
	case unix.PACKET_HOST:
		return pcapng.Inbound | pcapng.Unicast
	case unix.PACKET_BROADCAST:
		return pcapng.Inbound | pcapng.Broadcast
	case unix.PACKET_MULTICAST:
		return pcapng.Inbound | pcapng.Multicast
	case unix.PACKET_OTHERHOST:
		return pcapng.Inbound | pcapng.Promiscuous
	case unix.PACKET_OUTGOING:
		return pcapng.Outbound
	default:
		return 0
	}
}
