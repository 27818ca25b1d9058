package afpacket

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

const (
	// slideLimit is the captured length from which on a packet stays where it is, with the header written before it and
	// the trailer after it. Shorter packets move down to the end of the previous one, so that they share one run.
	// Measured: up to about 1000 bytes, moving is cheaper than another element of writev(2). At 1500 bytes it costs the
	// same, because the write finds the bytes in the cache. GSO frames have up to 64 KiB.
	slideLimit = 2048
	// frameOverhead is the least distance from a frame's start to its packet: header and address, aligned, and at
	// least 14 bytes (tpacket_rcv in net/packet/af_packet.c). It must hold the previous packet's trailer, the new
	// packet's header and a VLAN tag.
	frameOverhead = 80
	frameHdrLen   = uint32(unsafe.Sizeof(unix.Tpacket3Hdr{}))
	addrLen       = uint32(unsafe.Sizeof(unix.RawSockaddrLinklayer{}))
	frameAlign    = 8
	vlanTagLen    = 4
	vlanOffset    = 12 // after the two MAC addresses
)

// The space before a packet is enough for everything that encode writes there.
const _ = uint(frameOverhead - pcapng.MaxPacketTrailerLen - pcapng.PacketHeaderLen - vlanTagLen)

// frame is the kernel's header of one packet in a ring block. It is a copy, because encode overwrites the original.
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

// readFrame reads the frame at offset off of a block. It returns false if the frame is not within the block.
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

// readNext reads the frame after f. It returns false if that begins before f's packet ends.
func (f *frame) readNext(b []byte, next *frame) bool {
	return f.next >= uint64(f.data)+uint64(f.capLen) && readFrame(b, f.next, next)
}

// insertTag moves the VLAN tag from the kernel's header back to its place on the wire.
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
