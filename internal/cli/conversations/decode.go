package conversations

import (
	"encoding/binary"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Packet holds the headers that identify a conversation. Addresses are zero if the protocol has none or is unknown.
type Packet struct {
	// Protocol as in Conversation.
	Protocol string
	From, To netip.AddrPort
	// Transport is the header above IP and its payload, as far as they were captured. It is valid as long as the data that
	// was decoded, and empty in fragments.
	Transport []byte
	// TransportLength is the length of Transport on the wire in bytes.
	TransportLength int
}

// Decoder reads headers. One Decoder is used for a whole file, because it reuses gopacket's layers.
type Decoder struct {
	eth  layers.Ethernet
	vlan layers.Dot1Q
	sll  layers.LinuxSLL
	arp  layers.ARP
	ip4  layers.IPv4
	ip6  layers.IPv6
	skip layers.IPv6ExtensionSkipper
	frag layers.IPv6Fragment

	missing int // bytes of the packet that were not captured
}

// maxExtensions limits the VLAN tags or IPv6 extension headers of one packet.
const maxExtensions = 16

// Decode reads the headers of data, which may be truncated anywhere. Fields that were not captured stay zero. length is
// the packet's length on the wire in bytes.
func (d *Decoder) Decode(link pcapng.LinkType, data []byte, length int) Packet {
	d.missing = max(0, length-len(data))
	switch layers.LinkType(link) {
	case layers.LinkTypeEthernet:
		if d.eth.DecodeFromBytes(data, gopacket.NilDecodeFeedback) == nil {
			return d.network(d.eth.EthernetType, d.eth.Payload)
		}
	case layers.LinkTypeLinuxSLL:
		if d.sll.DecodeFromBytes(data, gopacket.NilDecodeFeedback) == nil {
			return d.network(d.sll.EthernetType, d.sll.Payload)
		}
	case layers.LinkTypeRaw, layers.LinkTypeIPv4, layers.LinkTypeIPv6:
		return d.raw(data)
	default:
	}
	return Packet{Protocol: "unknown"}
}

func (d *Decoder) raw(data []byte) Packet {
	if len(data) > 0 && data[0]>>4 == 6 {
		return d.ipv6(data)
	}
	return d.ipv4(data)
}

func (d *Decoder) network(t layers.EthernetType, data []byte) Packet {
	for range maxExtensions {
		if t != layers.EthernetTypeDot1Q && t != layers.EthernetTypeQinQ {
			break
		}
		if d.vlan.DecodeFromBytes(data, gopacket.NilDecodeFeedback) != nil {
			return Packet{Protocol: "802.1Q"}
		}
		t, data = d.vlan.Type, d.vlan.Payload
	}
	switch t {
	case layers.EthernetTypeIPv4:
		return d.ipv4(data)
	case layers.EthernetTypeIPv6:
		return d.ipv6(data)
	case layers.EthernetTypeARP:
		return d.address(data)
	default:
		return Packet{Protocol: t.String()}
	}
}

// address decodes ARP: the sender and the target.
func (d *Decoder) address(data []byte) Packet {
	p := Packet{Protocol: "ARP"}
	if d.arp.DecodeFromBytes(data, gopacket.NilDecodeFeedback) == nil {
		p.From, p.To = endpoint(d.arp.SourceProtAddress, 0), endpoint(d.arp.DstProtAddress, 0)
	}
	return p
}

func (d *Decoder) ipv4(data []byte) Packet {
	if d.ip4.DecodeFromBytes(data, gopacket.NilDecodeFeedback) != nil {
		return Packet{Protocol: "IPv4"}
	}
	payload, wire := d.ip4.Payload, len(d.ip4.Payload)+d.missing
	if total := int(binary.BigEndian.Uint16(data[2:])); total > 0 { // Linux captures segments before segmentation with 0
		wire = min(wire, total-4*int(d.ip4.IHL))
	}
	if d.ip4.FragOffset != 0 {
		payload = nil
	}
	p := transport(d.ip4.Protocol, d.ip4.SrcIP, d.ip4.DstIP, payload)
	if d.ip4.FragOffset == 0 && d.ip4.Flags&layers.IPv4MoreFragments == 0 {
		p.Transport, p.TransportLength = payload, wire
	}
	return p
}

func (d *Decoder) ipv6(data []byte) Packet {
	err := d.ip6.DecodeFromBytes(data, gopacket.NilDecodeFeedback)
	payload := d.ip6.Payload
	if err != nil {
		// Linux captures segments before segmentation (BIG TCP) with length 0, which gopacket rejects.
		if len(data) < 40 || d.ip6.Length != 0 || d.ip6.HopByHop != nil {
			return Packet{Protocol: "IPv6"}
		}
		payload = data[40:]
	}
	next := d.ip6.NextHeader
	if d.ip6.HopByHop != nil {
		next = d.ip6.HopByHop.NextHeader
	}
	next, payload, whole := d.extensions(next, payload)
	p := transport(next, d.ip6.SrcIP, d.ip6.DstIP, payload)
	if whole {
		p.Transport, p.TransportLength = payload, d.payloadLength(data, payload)
	}
	return p
}

// payloadLength returns the length on the wire of the payload behind the extension headers of an IPv6 packet.
func (d *Decoder) payloadLength(data, payload []byte) int {
	captured := len(data) - 40
	wire := captured + d.missing
	if n := int(d.ip6.Length); n > 0 { // what follows is padding of the link
		captured, wire = min(captured, n), min(wire, n)
	}
	extensions := captured - len(payload)
	return max(len(payload), wire-extensions)
}

// extensions skips the extension headers of IPv6 and returns the payload. Fragments other than the first have none. whole
// says that the packet is not a fragment.
func (d *Decoder) extensions(next layers.IPProtocol, data []byte) (proto layers.IPProtocol, payload []byte, whole bool) {
	whole = true
	for range maxExtensions {
		t := next.LayerType()
		switch {
		case t == layers.LayerTypeIPv6Fragment:
			if d.frag.DecodeFromBytes(data, gopacket.NilDecodeFeedback) != nil {
				return next, nil, false
			}
			whole = whole && d.frag.FragmentOffset == 0 && !d.frag.MoreFragments
			next, data = d.frag.NextHeader, d.frag.Payload
			if d.frag.FragmentOffset != 0 {
				return next, nil, false
			}
		case layers.LayerClassIPv6Extension.Contains(t):
			if d.skip.DecodeFromBytes(data, gopacket.NilDecodeFeedback) != nil {
				return next, nil, false
			}
			next, data = d.skip.NextHeader, d.skip.Payload
		default:
			return next, data, whole
		}
	}
	return next, nil, false
}

// transport reads only the ports. They are the first four bytes, so a short snap length still includes them.
func transport(proto layers.IPProtocol, from, to, payload []byte) Packet {
	var source, destination uint16
	switch proto {
	case layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolUDPLite, layers.IPProtocolSCTP:
		if len(payload) >= 4 {
			source, destination = binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])
		}
	default:
	}
	return Packet{Protocol: name(proto), From: endpoint(from, source), To: endpoint(to, destination)}
}

// name returns the name that tcpdump and Wireshark use.
func name(proto layers.IPProtocol) string {
	switch proto {
	case layers.IPProtocolICMPv4:
		return "ICMP"
	case layers.IPProtocolICMPv6:
		return "ICMPv6"
	default:
		return proto.String()
	}
}

func endpoint(ip []byte, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr, port)
}
