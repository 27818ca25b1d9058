package conversations

import (
	"encoding/binary"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// packet holds the headers that identify a conversation. Addresses are zero if the protocol has none or is unknown.
type packet struct {
	protocol string
	from, to netip.AddrPort
	segment  segment
}

// segment is the part of a TCP stream in a packet: its first byte, and its length in bytes. Zero is none.
type segment struct{ first, length uint32 }

// decoder reads headers. One decoder is used for a whole file, because it reuses gopacket's layers.
type decoder struct {
	eth  layers.Ethernet
	vlan layers.Dot1Q
	sll  layers.LinuxSLL
	arp  layers.ARP
	ip4  layers.IPv4
	ip6  layers.IPv6
	skip layers.IPv6ExtensionSkipper
	frag layers.IPv6Fragment
}

// maxExtensions limits the VLAN tags or IPv6 extension headers of one packet.
const maxExtensions = 16

// decode reads the headers of data, which may be truncated anywhere. Fields that were not captured stay zero.
func (d *decoder) decode(link pcapng.LinkType, data []byte) packet {
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
	return packet{protocol: "unknown"}
}

func (d *decoder) raw(data []byte) packet {
	if len(data) > 0 && data[0]>>4 == 6 {
		return d.ipv6(data)
	}
	return d.ipv4(data)
}

func (d *decoder) network(t layers.EthernetType, data []byte) packet {
	for range maxExtensions {
		if t != layers.EthernetTypeDot1Q && t != layers.EthernetTypeQinQ {
			break
		}
		if d.vlan.DecodeFromBytes(data, gopacket.NilDecodeFeedback) != nil {
			return packet{protocol: "802.1Q"}
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
		return packet{protocol: t.String()}
	}
}

// address decodes ARP: the sender and the target.
func (d *decoder) address(data []byte) packet {
	p := packet{protocol: "ARP"}
	if d.arp.DecodeFromBytes(data, gopacket.NilDecodeFeedback) == nil {
		p.from, p.to = endpoint(d.arp.SourceProtAddress, 0), endpoint(d.arp.DstProtAddress, 0)
	}
	return p
}

func (d *decoder) ipv4(data []byte) packet {
	if d.ip4.DecodeFromBytes(data, gopacket.NilDecodeFeedback) != nil {
		return packet{protocol: "IPv4"}
	}
	payload, length := d.ip4.Payload, int(d.ip4.Length)-4*int(d.ip4.IHL)
	if d.ip4.FragOffset != 0 {
		payload = nil
	}
	return transport(d.ip4.Protocol, d.ip4.SrcIP, d.ip4.DstIP, payload, length)
}

func (d *decoder) ipv6(data []byte) packet {
	err := d.ip6.DecodeFromBytes(data, gopacket.NilDecodeFeedback)
	payload := d.ip6.Payload
	if err != nil {
		// Linux captures segments before segmentation (BIG TCP) with length 0, which gopacket rejects.
		if len(data) < 40 || d.ip6.Length != 0 || d.ip6.HopByHop != nil {
			return packet{protocol: "IPv6"}
		}
		payload = data[40:]
	}
	next, length := d.ip6.NextHeader, int(d.ip6.Length)
	if d.ip6.HopByHop != nil {
		next = d.ip6.HopByHop.NextHeader
		length -= d.ip6.HopByHop.ActualLength
	}
	length -= len(payload)
	next, payload = d.extensions(next, payload)
	length += len(payload)
	return transport(next, d.ip6.SrcIP, d.ip6.DstIP, payload, length)
}

// extensions skips the extension headers of IPv6 and returns the payload. Fragments other than the first
// have none.
func (d *decoder) extensions(next layers.IPProtocol, data []byte) (layers.IPProtocol, []byte) {
	for range maxExtensions {
		t := next.LayerType()
		switch {
		case t == layers.LayerTypeIPv6Fragment:
			if d.frag.DecodeFromBytes(data, gopacket.NilDecodeFeedback) != nil {
				return next, nil
			}
			next, data = d.frag.NextHeader, d.frag.Payload
			if d.frag.FragmentOffset != 0 {
				return next, nil
			}
		case layers.LayerClassIPv6Extension.Contains(t):
			if d.skip.DecodeFromBytes(data, gopacket.NilDecodeFeedback) != nil {
				return next, nil
			}
			next, data = d.skip.NextHeader, d.skip.Payload
		default:
			return next, data
		}
	}
	return next, nil
}

// transport reads only the ports, which a short snap length still includes, and which part of a TCP stream a packet has. length is the
// payload's on the wire, in bytes.
func transport(proto layers.IPProtocol, from, to, payload []byte, length int) packet {
	var source, destination uint16
	switch proto {
	case layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolUDPLite, layers.IPProtocolSCTP:
		if len(payload) >= 4 {
			source, destination = binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])
		}
	default:
	}
	p := packet{protocol: name(proto), from: endpoint(from, source), to: endpoint(to, destination)}
	if proto == layers.IPProtocolTCP {
		p.segment = segmentOf(payload, length)
	}
	return p
}

// segmentOf reads a TCP header.
func segmentOf(tcp []byte, length int) segment {
	const offsetAt = 12
	if len(tcp) <= offsetAt {
		return segment{}
	}
	header := int(tcp[offsetAt]>>4) * 4
	if length <= header {
		return segment{}
	}
	return segment{first: binary.BigEndian.Uint32(tcp[4:]), length: uint32(length - header)}
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
