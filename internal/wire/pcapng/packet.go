package pcapng

import "unsafe"

// PacketHeaderLen is the number of bytes of an Enhanced Packet Block before the packet's first byte.
const PacketHeaderLen = 28

// packetTrailerLen is the trailer without padding: epb_flags (8), end of options (4), total length (4).
const packetTrailerLen = 16

// MaxPacketTrailerLen is the most bytes that PutPacketTrailer writes.
const MaxPacketTrailerLen = packetTrailerLen + 3

// PacketTrailerLen returns the number of bytes of an Enhanced Packet Block after a packet of capLen bytes: padding,
// the flags option, the end of options and the total length. At most MaxPacketTrailerLen.
func PacketTrailerLen(capLen int) int { return pad(capLen) + packetTrailerLen }

// PacketLen returns the length in bytes of the whole Enhanced Packet Block around a packet of capLen bytes.
func PacketLen(capLen int) int { return PacketHeaderLen + capLen + PacketTrailerLen(capLen) }

// PacketHeader is the memory layout of an Enhanced Packet Block up to the packet's first byte (draft-ietf-opsawg-pcapng).
type PacketHeader struct {
	Type uint32
	// Size of the whole block in bytes.
	Size      uint32
	Interface uint32
	// TimeHigh and TimeLow are the halves of Time.
	TimeHigh, TimeLow uint32
	// CapLen is the captured length of the packet in bytes, Length its length on the wire.
	CapLen, Length uint32
}

// PacketHeader has its length in a file.
const _ = -(PacketHeaderLen ^ unsafe.Sizeof(PacketHeader{}))

// PacketHeaderOf returns the header of the block at the beginning of b, without a copy. Every architecture that Sonde is
// built for is little-endian, as its files are, and can load unaligned words. It panics if b is shorter than PacketHeaderLen.
func PacketHeaderOf(b []byte) *PacketHeader {
	_ = b[PacketHeaderLen-1]
	return (*PacketHeader)(unsafe.Pointer(unsafe.SliceData(b)))
}

// IsPacket reports whether the block is an Enhanced Packet Block.
func (h *PacketHeader) IsPacket() bool { return h.Type == typePacket }

// Time is in nanoseconds since 1970-01-01 UTC in the files that Sonde writes.
func (h *PacketHeader) Time() uint64 { return uint64(h.TimeHigh)<<32 | uint64(h.TimeLow) }

// PutPacketHeader writes the first PacketHeaderLen bytes of an Enhanced Packet Block to b. The packet's capLen bytes
// and PutPacketTrailer with the same capLen must follow. The time is in nanoseconds since 1970-01-01 UTC, and length is
// the packet's length on the wire. It panics if b is too short.
func PutPacketHeader(b []byte, iface uint32, time uint64, capLen, length uint32) {
	_ = b[PacketHeaderLen-1]
	order.PutUint32(b[0:], typePacket)
	order.PutUint32(b[4:], uint32(PacketLen(int(capLen))))
	order.PutUint32(b[8:], iface)
	order.PutUint32(b[12:], uint32(time>>32))
	order.PutUint32(b[16:], uint32(time))
	order.PutUint32(b[20:], capLen)
	order.PutUint32(b[24:], length)
}

// PutPacketTrailer writes the bytes after a packet of capLen bytes to b and returns its length,
// PacketTrailerLen(capLen). It panics if b is too short.
func PutPacketTrailer(b []byte, capLen uint32, flags Flags) int {
	n := pad(int(capLen))
	for i := range n {
		b[i] = 0
	}
	b = b[n:]
	_ = b[packetTrailerLen-1]
	order.PutUint32(b[0:], optPacketFlags|4<<16)
	order.PutUint32(b[4:], uint32(flags))
	order.PutUint32(b[8:], optEnd)
	order.PutUint32(b[12:], uint32(PacketLen(int(capLen))))
	return n + packetTrailerLen
}

// AppendPacket appends an Enhanced Packet Block. The packet's comments and process are written; for the fast path without them
// and without a copy of the data see PutPacketHeader.
func AppendPacket(b []byte, p *Packet) []byte {
	start := len(b)
	b = append(b, make([]byte, PacketHeaderLen)...)
	PutPacketHeader(b[start:], p.Interface, p.Time, uint32(len(p.Data)), p.Length)
	b = append(b, p.Data...)
	b = append(b, make([]byte, pad(len(p.Data)))...)
	opts := len(b)
	b = appendComments(b, p.Comments)
	if p.Flags != 0 {
		b = order.AppendUint16(b, optPacketFlags)
		b = order.AppendUint16(b, 4)
		b = order.AppendUint32(b, uint32(p.Flags))
	}
	if p.Process != nil {
		b = appendProcess(b, p.Process)
	}
	return finish(b, start, opts)
}
