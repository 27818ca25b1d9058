// Package simulator runs filters on packets in user space, for tests with more programs than a kernel should load. It runs
// the eBPF instructions that agents/capture/ebpffilter emits. The reference is classic BPF, which it runs as the kernel
// does for a packet socket. Only tests use it.
package simulator

import "encoding/binary"

// Packet is a packet and the kernel's metadata of it.
type Packet struct {
	// Data is the packet from its link-layer header on.
	Data []byte
	// Linear is how many bytes of Data are in the linear part.
	Linear int
	// Network is the offset of its network header.
	Network int

	// The other fields are results of metadata loads.

	// Protocol and VlanProto are EtherTypes.
	Protocol, VlanProto uint16
	// Type is PACKET_HOST and so on.
	Type uint32
	// VlanTag is the tag that the device removed, if VlanPresent is 1.
	VlanTag, VlanPresent, Interface, Mark, Queue, Hash, CPU, Random uint32
}

// Loads with these offsets count from the network header and from the link-layer header (SKF_NET_OFF and SKF_LL_OFF of
// linux/filter.h).
const (
	fromNetwork = -0x100000
	fromLink    = -0x200000
)

// load reads big-endian, as bpf_skb_load_helper_32 and its siblings in net/core/filter.c do. A negative offset reaches
// the linear part only.
func (p *Packet) load(offset int32, size int) (uint32, bool) {
	begin, end := int(offset), len(p.Data)
	switch {
	case offset >= 0:
	case offset >= fromNetwork:
		begin, end = p.Network+int(offset)-fromNetwork, p.Linear
	case offset >= fromLink:
		begin, end = int(offset)-fromLink, p.Linear
	default:
		return 0, false
	}
	if begin+size > end {
		return 0, false
	}
	return bigEndian(p.Data[begin : begin+size]), true
}

func bigEndian(b []byte) uint32 {
	switch len(b) {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(binary.BigEndian.Uint16(b))
	default:
		return binary.BigEndian.Uint32(b)
	}
}
