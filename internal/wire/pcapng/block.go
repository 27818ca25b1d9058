package pcapng

import "time"

// Block type codes (draft-ietf-opsawg-pcapng, section 11.1).
const (
	typeSection    = 0x0A0D0D0A
	typeInterface  = 0x00000001
	typeNames      = 0x00000004
	typeStatistics = 0x00000005
	typePacket     = 0x00000006
)

const (
	byteOrderMagic = 0x1A2B3C4D
	versionMajor   = 1
	versionMinor   = 0
)

// Option codes of the blocks below; each list is its own name space (draft-ietf-opsawg-pcapng, sections 3.5 and 4).
const (
	optEnd     = 0
	optComment = 1

	optHardware    = 2
	optOS          = 3
	optApplication = 4

	optIfName        = 2
	optIfDescription = 3
	optIfSpeed       = 8
	optIfTSResol     = 9
	optIfFilter      = 11
	optIfTSOffset    = 14

	optPacketFlags = 2

	optStatStart        = 2
	optStatEnd          = 3
	optStatReceived     = 4
	optStatIfDrop       = 5
	optStatFilterAccept = 6
	optStatOSDrop       = 7
	optStatDelivered    = 8
)

// LinkType is the protocol of a packet's first header (the registry draft-ietf-opsawg-pcaplinktype).
type LinkType uint16

// The link types that Sonde captures.
const (
	// LinkTypeEthernet is IEEE 802.3 Ethernet. Linux presents loopback as Ethernet, too.
	LinkTypeEthernet LinkType = 1
	// LinkTypeRaw is an IPv4 or IPv6 packet without a link header (tun devices, WireGuard, IP tunnels).
	LinkTypeRaw LinkType = 101
)

// Flags is the epb_flags word: bits 0 and 1 are the direction, bits 2 to 4 the reception type
// (draft-ietf-opsawg-pcapng, section 4.3.1).
type Flags uint32

// Directions and reception types. One of each may be or-ed together; zero means unknown.
const (
	Inbound  Flags = 1
	Outbound Flags = 2

	Unicast     Flags = 1 << 2
	Multicast   Flags = 2 << 2
	Broadcast   Flags = 3 << 2
	Promiscuous Flags = 4 << 2

	directionMask Flags = 3
)

// Direction returns only the direction bits: Inbound, Outbound or zero.
func (f Flags) Direction() Flags { return f & directionMask }

// Block is one interpreted block: *Section, *Interface, *Names, *Packet or *Statistics.
type Block interface{ block() }

// Section is a Section Header Block: the origin of the file. All texts are UTF-8; empty ones are left out.
type Section struct {
	Hardware    string
	OS          string
	Application string
	Comments    []string
}

// Interface is an Interface Description Block. Its identity is its position in the section, from zero.
type Interface struct {
	Name        string
	Description string
	// Filter is the capture filter as text in the language of pcap-filter(7).
	Filter   string
	LinkType LinkType
	// SnapLen is the most bytes of a packet that were kept; zero means no limit.
	SnapLen  uint32
	Comments []string

	// clock converts the file's time stamps to nanoseconds; the writer always uses nanoseconds.
	clock clock
}

// Packet is an Enhanced Packet Block.
type Packet struct {
	// Interface is the position of the packet's interface in its section.
	Interface uint32
	// Time is in nanoseconds since 1970-01-01 UTC.
	Time uint64
	// Data is the captured bytes. From a Reader it is valid only until its next call.
	Data []byte
	// Length is the packet's length on the wire in bytes; at least len(Data).
	Length   uint32
	Flags    Flags
	Comments []string
	// Process is nil if the file does not name processes. Comments have the same as text.
	Process *Process
}

// Timestamp returns the packet's time as time.Time in UTC.
func (p *Packet) Timestamp() time.Time {
	return time.Unix(int64(p.Time/1e9), int64(p.Time%1e9)).UTC()
}

// Statistics is an Interface Statistics Block. Counters that are nil are left out of the file.
type Statistics struct {
	Interface uint32
	// Time, Start and End are in nanoseconds since 1970-01-01 UTC; a zero Start or End is left out.
	Time  uint64
	Start uint64
	End   uint64

	// Received counts the packets that the interface received (isb_ifrecv).
	Received *uint64
	// IfDrop counts the packets dropped for lack of resources (isb_ifdrop). Wireshark shows it as "dropped".
	IfDrop *uint64
	// FilterAccept counts the packets that passed the filter (isb_filteraccept).
	FilterAccept *uint64
	// OSDrop counts the packets that passed the filter and were dropped by the operating system (isb_osdrop).
	OSDrop *uint64
	// Delivered counts the packets that reached the file (isb_usrdeliv).
	Delivered *uint64
	Comments  []string
}

func (*Section) block()    {}
func (*Interface) block()  {}
func (*Packet) block()     {}
func (*Statistics) block() {}
