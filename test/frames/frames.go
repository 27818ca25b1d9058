// Package frames builds Ethernet frames of many protocols for tests of filters.
package frames

import (
	"bytes"
	"fmt"
	"net"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

type stack []gopacket.SerializableLayer

// All returns the frames by name, as on the wire but without padding and checksum.
func All() (map[string][]byte, error) {
	all, err := serialize(ip4Frames(), ip6Frames(), linkFrames(), llcFrames(), encapsulatedFrames())
	if err != nil {
		return nil, err
	}
	// The serializer pads to the minimum length of Ethernet, which veth does not have.
	all["short"] = all["short"][:15]
	return all, nil
}

func serialize(groups ...map[string]stack) (map[string][]byte, error) {
	all := make(map[string][]byte)
	for _, group := range groups {
		for name, layers := range group {
			if _, exists := all[name]; exists {
				return nil, fmt.Errorf("two frames are called %q", name)
			}
			buffer := gopacket.NewSerializeBuffer()
			if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true}, layers...); err != nil {
				return nil, fmt.Errorf("serialize %q: %w", name, err)
			}
			all[name] = bytes.Clone(buffer.Bytes())
		}
	}
	return all, nil
}

func mac(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }

func ether(kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: mac(1), DstMAC: mac(2), EthernetType: kind}
}

func etherTo(dst net.HardwareAddr, kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: mac(3), DstMAC: dst, EthernetType: kind}
}

func ip4(src, dst string, proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{
		Version: 4, IHL: 5, TTL: 64, Id: uint16(len(src)+int(proto)) * 7,
		SrcIP: net.ParseIP(src).To4(), DstIP: net.ParseIP(dst).To4(), Protocol: proto,
	}
}

func ip6(src, dst string, next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, SrcIP: net.ParseIP(src), DstIP: net.ParseIP(dst), NextHeader: next}
}

func tcp(src, dst int) *layers.TCP {
	return &layers.TCP{SrcPort: layers.TCPPort(src), DstPort: layers.TCPPort(dst), ACK: true, Window: 512}
}

func udp(src, dst int) *layers.UDP {
	return &layers.UDP{SrcPort: layers.UDPPort(src), DstPort: layers.UDPPort(dst)}
}

func raw(n int) gopacket.Payload { return bytes.Repeat([]byte{0xa5}, n) }

const (
	etIP, etIP6, etARP = layers.EthernetTypeIPv4, layers.EthernetTypeIPv6, layers.EthernetTypeARP
	pTCP, pUDP         = layers.IPProtocolTCP, layers.IPProtocolUDP
)

func ip4Frames() map[string]stack {
	syn, synAck, rst, fin := tcp(40000, 80), tcp(80, 40000), tcp(8080, 40001), tcp(40002, 443)
	syn.SYN, syn.ACK = true, false
	synAck.SYN = true
	rst.RST = true
	fin.FIN = true
	options := ip4("10.0.0.1", "10.0.0.2", pTCP)
	options.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
	shortLived := ip4("10.0.0.1", "10.1.2.3", pUDP)
	shortLived.TTL = 1
	marked := ip4("10.0.0.5", "10.0.0.2", pUDP)
	marked.TOS = 46 << 2
	first, second := ip4("10.0.0.1", "10.0.0.2", pUDP), ip4("10.0.0.1", "10.0.0.2", pUDP)
	first.Flags = layers.IPv4MoreFragments
	second.FragOffset = 185
	plain := func(proto layers.IPProtocol) stack {
		return stack{ether(etIP), ip4("10.0.0.6", "10.0.0.2", proto), raw(24)}
	}
	icmp := func(kind, code uint8) stack {
		return stack{
			ether(etIP), ip4("10.0.0.1", "10.0.0.7", layers.IPProtocolICMPv4),
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, code)}, raw(8),
		}
	}
	return map[string]stack{
		"tcp syn":             {ether(etIP), ip4("10.0.0.1", "10.0.0.2", pTCP), syn},
		"tcp syn+ack":         {ether(etIP), ip4("10.0.0.2", "10.0.0.1", pTCP), synAck},
		"tcp rst+ack":         {ether(etIP), ip4("10.1.2.3", "10.0.0.1", pTCP), rst},
		"tcp fin":             {ether(etIP), ip4("10.0.0.3", "192.168.7.7", pTCP), fin},
		"tcp request":         {ether(etIP), ip4("10.0.0.1", "10.0.0.2", pTCP), tcp(40000, 80), raw(60)},
		"tcp large":           {ether(etIP), ip4("10.0.0.2", "10.0.0.1", pTCP), tcp(80, 40000), raw(1300)},
		"tcp ssh":             {ether(etIP), ip4("192.168.7.4", "172.16.0.1", pTCP), tcp(50000, 22), raw(20)},
		"tcp 8080":            {ether(etIP), ip4("172.16.0.1", "10.9.9.9", pTCP), tcp(51000, 8080), raw(1)},
		"tcp with ip options": {ether(etIP), options, tcp(40000, 80), raw(10)},
		"tcp to itself":       {ether(etIP), ip4("10.0.0.9", "10.0.0.9", pTCP), tcp(40000, 81)},
		"udp dns query":       {ether(etIP), ip4("10.0.0.1", "10.0.0.8", pUDP), udp(5353, 53), raw(12)},
		"udp dns answer":      {ether(etIP), ip4("10.0.0.8", "10.0.0.1", pUDP), udp(53, 1000), raw(90)},
		"udp 80":              {ether(etIP), ip4("172.16.0.2", "172.16.0.3", pUDP), udp(80, 5500), raw(7)},
		"udp 8500":            {ether(etIP), ip4("192.168.7.1", "192.168.8.1", pUDP), udp(8500, 9), raw(7)},
		"udp ttl 1":           {ether(etIP), shortLived, udp(33000, 33434), raw(4)},
		"udp expedited":       {ether(etIP), marked, udp(10000, 20000), raw(160)},
		"udp fragment first":  {ether(etIP), first, udp(2049, 2049), raw(1400)},
		"udp fragment second": {ether(etIP), second, raw(100)},
		"udp multicast":       {etherTo(net.HardwareAddr{1, 0, 0x5e, 0, 0, 1}, etIP), ip4("10.0.0.1", "224.0.0.1", pUDP), udp(1900, 1900), raw(5)},
		"udp group to a host": {ether(etIP), ip4("10.0.0.1", "239.1.1.1", pUDP), udp(1901, 1900), raw(5)},
		"udp broadcast":       {etherTo(layers.EthernetBroadcast, etIP), ip4("10.0.0.1", "10.0.0.255", pUDP), udp(68, 67), raw(240)},
		"icmp echo":           icmp(layers.ICMPv4TypeEchoRequest, 0),
		"icmp echo reply":     icmp(layers.ICMPv4TypeEchoReply, 0),
		"icmp unreachable":    icmp(layers.ICMPv4TypeDestinationUnreachable, 3),
		"icmp time exceeded":  icmp(layers.ICMPv4TypeTimeExceeded, 0),
		"igmp":                plain(layers.IPProtocolIGMP),
		"gre":                 plain(layers.IPProtocolGRE),
		"esp":                 plain(layers.IPProtocolESP),
		"ah":                  plain(layers.IPProtocolAH),
		"ospf":                plain(layers.IPProtocolOSPF),
		"pim":                 plain(103),
		"vrrp":                plain(layers.IPProtocolVRRP),
		"sctp":                {ether(etIP), ip4("10.0.0.1", "10.0.0.2", layers.IPProtocolSCTP), &layers.SCTP{SrcPort: 2905, DstPort: 2905}, raw(16)},
		"geneve of ip":        {ether(etIP), ip4("10.5.0.1", "10.5.0.2", pUDP), udp(33333, 6081), geneve(0x0800, 0xb), ip4("10.0.0.1", "10.0.0.2", pTCP), tcp(1, 80)},
		"geneve of ethernet":  {ether(etIP), ip4("10.5.0.1", "10.5.0.2", pUDP), udp(33334, 6081), geneve(0x6558, 0xb), ether(etIP6), ip6("fd00::1", "fd00::2", pTCP), tcp(1, 80)},
		"geneve of another":   {ether(etIP), ip4("10.5.0.1", "10.5.0.2", pUDP), udp(33335, 6081), geneve(0x0800, 0xc), ip4("10.0.0.1", "10.0.0.2", pTCP), tcp(1, 80)},
	}
}

// geneve is a Geneve header (RFC 8926) without options.
func geneve(kind, vni uint16) gopacket.Payload {
	return gopacket.Payload{0, 0, byte(kind >> 8), byte(kind), 0, byte(vni >> 8), byte(vni), 0}
}

func ip6Frames() map[string]stack {
	icmp := func(dst string, kind uint8) stack {
		return stack{
			ether(etIP6), ip6("fd00::1", dst, layers.IPProtocolICMPv6),
			&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}, raw(20),
		}
	}
	return map[string]stack{
		"ip6 tcp":        {ether(etIP6), ip6("fd00::1", "fd00::2", pTCP), tcp(40000, 80), raw(30)},
		"ip6 tcp answer": {ether(etIP6), ip6("fd00::2", "fd00::1", pTCP), tcp(443, 40000), raw(300)},
		"ip6 udp":        {ether(etIP6), ip6("fd00::1", "fd00:1::5", pUDP), udp(5000, 53), raw(30)},
		"ip6 udp from":   {ether(etIP6), ip6("fd00:1::5", "fd00::3", pUDP), udp(8081, 6001), raw(30)},
		"ip6 sctp":       {ether(etIP6), ip6("fd00::4", "fd00::5", layers.IPProtocolSCTP), &layers.SCTP{SrcPort: 1, DstPort: 2905}, raw(16)},
		"ip6 echo":       icmp("fd00::2", layers.ICMPv6TypeEchoRequest),
		"ip6 echo reply": icmp("fd00::2", layers.ICMPv6TypeEchoReply),
		"ip6 neighbor": {
			etherTo(net.HardwareAddr{0x33, 0x33, 0xff, 0, 0, 2}, etIP6), ip6("fd00::1", "ff02::1:ff00:2", layers.IPProtocolICMPv6),
			&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}, raw(20),
		},
		"ip6 fragment": {ether(etIP6), ip6("fd00::1", "fd00::2", layers.IPProtocolIPv6Fragment), gopacket.Payload{6, 0, 0, 1, 0, 0, 0, 9}, tcp(40000, 80)},
	}
}

func linkFrames() map[string]stack {
	arp := func(operation uint16, src, dst string) *layers.ARP {
		return &layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: etIP, Operation: operation, HwAddressSize: 6, ProtAddressSize: 4,
			SourceHwAddress: mac(1), SourceProtAddress: net.ParseIP(src).To4(),
			DstHwAddress: mac(2), DstProtAddress: net.ParseIP(dst).To4(),
		}
	}
	return map[string]stack{
		"arp request":  {etherTo(layers.EthernetBroadcast, etARP), arp(layers.ARPRequest, "10.0.0.1", "10.0.0.2")},
		"arp reply":    {ether(etARP), arp(layers.ARPReply, "10.0.0.2", "10.0.0.1")},
		"arp others":   {ether(etARP), arp(layers.ARPReply, "192.168.7.1", "192.168.7.2")},
		"rarp":         {ether(0x8035), arp(3, "10.0.0.1", "10.0.0.2")},
		"lldp":         {etherTo(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0xe}, 0x88cc), raw(40)},
		"loopback":     {ether(0x9000), raw(40)},
		"decnet":       {ether(0x6003), raw(40)},
		"lat":          {ether(0x6004), raw(40)},
		"mopdl":        {ether(0x6001), raw(40)},
		"appletalk":    {ether(0x809b), raw(40)},
		"aarp":         {ether(0x80f3), raw(40)},
		"ipx":          {ether(0x8137), raw(40)},
		"another type": {etherTo(mac(9), 0x88b5), raw(40)},
		"short":        {etherTo(mac(9), 0x88b6), raw(1)},
		"pppoe discovery": {
			ether(layers.EthernetTypePPPoEDiscovery), &layers.PPPoE{Version: 1, Type: 1, Code: layers.PPPoECodePADI}, raw(4),
		},
	}
}

// llc is an 802.3 frame: a length instead of a type, then an 802.2 header.
func llc(header ...byte) stack {
	return stack{
		&layers.Ethernet{SrcMAC: mac(1), DstMAC: net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0}, EthernetType: layers.EthernetTypeLLC, Length: uint16(len(header) + 40)},
		gopacket.Payload(header), raw(40),
	}
}

func llcFrames() map[string]stack {
	return map[string]stack{
		"stp":               llc(0x42, 0x42, 0x03),
		"isis":              llc(0xfe, 0xfe, 0x03, 0x83),
		"esis":              llc(0xfe, 0xfe, 0x03, 0x82),
		"netbeui":           llc(0xf0, 0xf0, 0x03),
		"receiver ready":    llc(0x10, 0x10, 0x01, 0x00),
		"information":       llc(0x10, 0x10, 0x00, 0x00),
		"snap appletalk":    llc(0xaa, 0xaa, 0x03, 0x08, 0x00, 0x07, 0x80, 0x9b),
		"snap aarp":         llc(0xaa, 0xaa, 0x03, 0x00, 0x00, 0x00, 0x80, 0xf3),
		"snap ipx":          llc(0xaa, 0xaa, 0x03, 0x00, 0x00, 0x00, 0x81, 0x37),
		"raw netware 802.3": llc(0xff, 0xff),
	}
}

func tag(id uint16, next layers.EthernetType) *layers.Dot1Q {
	return &layers.Dot1Q{VLANIdentifier: id, Priority: 3, Type: next}
}

func label(n uint32, bottom bool) *layers.MPLS {
	return &layers.MPLS{Label: n, StackBottom: bottom, TTL: 9}
}

func encapsulatedFrames() map[string]stack {
	session := func(id uint16, protocol layers.PPPType) stack {
		return stack{ether(layers.EthernetTypePPPoESession), &layers.PPPoE{Version: 1, Type: 1, SessionId: id}, &layers.PPP{PPPType: protocol}}
	}
	inner4 := func(src, dst int) stack { return stack{ip4("10.0.0.1", "10.0.0.2", pTCP), tcp(src, dst)} }
	inner6 := stack{ip6("fd00::1", "fd00::2", pUDP), udp(53, 53)}
	join := func(parts ...stack) stack {
		var all stack
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	const dot1q, dot1ad = layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ
	return map[string]stack{
		"vlan 100 tcp":             join(stack{ether(dot1q), tag(100, etIP)}, inner4(40000, 80)),
		"vlan 100 other port":      join(stack{ether(dot1q), tag(100, etIP)}, inner4(40000, 22)),
		"vlan 100 ip6":             join(stack{ether(dot1q), tag(100, etIP6)}, inner6),
		"vlan 200 arp":             {ether(dot1q), tag(200, etARP), raw(28)},
		"vlan 200 udp":             {ether(dot1q), tag(200, etIP), ip4("10.0.0.1", "10.0.0.2", pUDP), udp(53, 53)},
		"priority tag":             join(stack{ether(dot1q), tag(0, etIP)}, inner4(40000, 80)),
		"service tag 100":          join(stack{ether(dot1ad), tag(100, etIP)}, inner4(40000, 80)),
		"vlan 100 in vlan 100":     join(stack{ether(dot1q), tag(100, dot1q), tag(100, etIP)}, inner4(40000, 80)),
		"vlan 200 in vlan 100":     join(stack{ether(dot1q), tag(100, dot1q), tag(200, etIP)}, inner4(40000, 80)),
		"vlan 100 in vlan 200":     join(stack{ether(dot1q), tag(200, dot1q), tag(100, etIP)}, inner4(40000, 80)),
		"vlan 200 in service 100":  join(stack{ether(dot1ad), tag(100, dot1q), tag(200, etIP)}, inner4(40000, 443)),
		"three tags":               join(stack{ether(dot1ad), tag(100, dot1q), tag(200, dot1q), tag(300, etIP6)}, inner6),
		"mpls 1024":                join(stack{ether(layers.EthernetTypeMPLSUnicast), label(1024, true)}, inner4(1, 80)),
		"mpls 1024 in 100":         join(stack{ether(layers.EthernetTypeMPLSUnicast), label(100, false), label(1024, true)}, inner4(1, 80)),
		"mpls 100 in 1024":         join(stack{ether(layers.EthernetTypeMPLSUnicast), label(1024, false), label(100, true)}, stack{ip4("10.0.0.3", "10.0.0.4", pTCP), tcp(1, 80)}),
		"pppoe session ip":         join(session(0x27, layers.PPPTypeIPv4), inner4(1, 80)),
		"pppoe session ip6":        join(session(0x27, layers.PPPTypeIPv6), inner6),
		"pppoe another session ip": join(session(0x28, layers.PPPTypeIPv4), inner4(1, 80)),
	}
}
