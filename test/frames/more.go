package frames

import (
	"bytes"
	"encoding/binary"
	"net"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// More returns rarer frames: extension headers, tunnels, uncommon protocols, and inconsistent headers.
func More() (map[string][]byte, error) {
	all, err := serialize(ip4More(), ip6More(), linkMore(), tunnels())
	if err != nil {
		return nil, err
	}
	syn := func() []byte { return bytes.Clone(all["tcp all flags"]) }
	change := func(name string, at int, to ...byte) {
		frame := syn()
		copy(frame[at:], to)
		all[name] = frame
	}
	change("ip header of no words", 14, 0x40)
	change("ip header of 15 words", 14, 0x4f)
	change("ip version 7", 14, 0x75)
	change("tcp header of no words", 46, 0)
	change("length beyond", 16, 0xff, 0xff)
	change("not the first fragment", 20, 0x00, 0x01)
	change("fragments allowed not", 20, 0x40, 0x00)
	change("reserved flag", 20, 0x80, 0x00)
	change("from everywhere", 26, 255, 255, 255, 255)
	change("ip6 in ip4's type", 14, 0x60)
	change("same ports", 34, 0x1f, 0x90, 0x1f, 0x90)
	return all, nil
}

func ip4More() map[string]stack {
	flags := tcp(65535, 1)
	flags.FIN, flags.SYN, flags.RST, flags.PSH, flags.URG, flags.ECE, flags.CWR = true, true, true, true, true, true, true
	none := tcp(22, 65000)
	none.ACK = false
	options := ip4("10.0.0.1", "10.1.2.3", pTCP)
	for range 10 {
		options.Options = append(options.Options, layers.IPv4Option{OptionType: 1})
	}
	withOptions := tcp(443, 8443)
	withOptions.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 180}}}
	icmp := func(kind, code uint8) stack {
		return stack{
			ether(etIP), ip4("192.168.7.4", "10.0.0.7", layers.IPProtocolICMPv4),
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, code)}, raw(28),
		}
	}
	plain := func(proto layers.IPProtocol) stack {
		return stack{ether(etIP), ip4("172.16.0.1", "10.1.0.2", proto), raw(40)}
	}
	return map[string]stack{
		"tcp all flags":         {ether(etIP), ip4("10.0.0.1", "10.0.0.2", pTCP), flags},
		"tcp no flags":          {ether(etIP), ip4("10.0.0.1", "10.0.0.2", pTCP), none, raw(3)},
		"tcp with options":      {ether(etIP), ip4("192.168.7.7", "192.168.7.9", pTCP), withOptions, raw(9)},
		"tcp most ip options":   {ether(etIP), options, tcp(40000, 8000), raw(99)},
		"udp of nothing":        {ether(etIP), ip4("10.0.0.1", "10.0.0.2", pUDP), udp(53, 53)},
		"udp 7999":              {ether(etIP), ip4("10.2.0.1", "10.1.255.255", pUDP), udp(7999, 9000), raw(33)},
		"icmp redirect":         icmp(layers.ICMPv4TypeRedirect, 1),
		"icmp source quench":    icmp(layers.ICMPv4TypeSourceQuench, 0),
		"icmp router advert":    icmp(layers.ICMPv4TypeRouterAdvertisement, 0),
		"icmp router solicit":   icmp(layers.ICMPv4TypeRouterSolicitation, 0),
		"icmp parameter":        icmp(layers.ICMPv4TypeParameterProblem, 0),
		"icmp timestamp":        icmp(layers.ICMPv4TypeTimestampRequest, 0),
		"icmp timestamp reply":  icmp(layers.ICMPv4TypeTimestampReply, 0),
		"icmp info":             icmp(layers.ICMPv4TypeInfoRequest, 0),
		"icmp info reply":       icmp(layers.ICMPv4TypeInfoReply, 0),
		"icmp mask":             icmp(layers.ICMPv4TypeAddressMaskRequest, 0),
		"icmp mask reply":       icmp(layers.ICMPv4TypeAddressMaskReply, 0),
		"icmp unreachable port": icmp(layers.ICMPv4TypeDestinationUnreachable, 1),
		"sctp another port":     {ether(etIP), ip4("10.0.0.3", "10.0.0.2", layers.IPProtocolSCTP), &layers.SCTP{SrcPort: 80, DstPort: 8500}, raw(16)},
		"igrp":                  plain(9),
		"egp":                   plain(8),
		"ipip":                  {ether(etIP), ip4("10.5.0.1", "10.5.0.2", layers.IPProtocolIPv4), ip4("10.0.0.1", "10.0.0.2", pTCP), tcp(1, 80)},
		"ip6 in ip4":            {ether(etIP), ip4("10.5.0.1", "10.5.0.2", layers.IPProtocolIPv6), ip6("fd00::1", "fd00::2", pTCP), tcp(1, 80)},
		"udplite":               plain(136),
		"protocol 255":          plain(255),
	}
}

func ip6More() map[string]stack {
	extended := func(first layers.IPProtocol, headers ...byte) stack {
		return stack{ether(etIP6), ip6("fd00::1", "fd00:1::5", first), gopacket.Payload(headers), tcp(40000, 80), raw(8)}
	}
	icmp := func(kind uint8) stack {
		return stack{
			ether(etIP6), ip6("fe80::1", "ff02::1", layers.IPProtocolICMPv6),
			&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}, raw(20),
		}
	}
	all := map[string]stack{
		"ip6 hop by hop":       extended(0, 6, 0, 1, 4, 0, 0, 0, 0),
		"ip6 destination":      extended(60, 6, 0, 1, 4, 0, 0, 0, 0),
		"ip6 routing":          extended(43, 6, 0, 4, 0, 0, 0, 0, 0),
		"ip6 three headers":    extended(0, 43, 0, 1, 4, 0, 0, 0, 0, 44, 0, 4, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 1),
		"ip6 fragment of more": extended(44, 6, 0, 5, 0x18, 0, 0, 0, 9),
		"ip6 ah":               extended(51, 6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
		"ip6 esp":              {ether(etIP6), ip6("fd00::9", "fd00::2", 50), raw(40)},
		"ip6 no next":          {ether(etIP6), ip6("fd00::9", "fd00::2", 59), raw(4)},
		"ip6 pim":              {ether(etIP6), ip6("fe80::9", "ff02::d", 103), raw(30)},
		"ip6 vrrp":             {ether(etIP6), ip6("fe80::9", "ff02::12", 112), raw(30)},
		"ip6 udp 8500":         {ether(etIP6), ip6("fd00::9", "fd00::9", pUDP), udp(8500, 8500), raw(64)},
		"ip6 large":            {ether(etIP6), ip6("fd00:1::1", "fd00:1::2", pUDP), udp(4000, 2049), raw(1400)},
		"ip6 in ip6":           {ether(etIP6), ip6("fd05::1", "fd05::2", layers.IPProtocolIPv6), ip6("fd00::1", "fd00::2", pTCP), tcp(1, 80)},
	}
	for kind, name := range map[uint8]string{
		1: "unreachable", 2: "too big", 3: "time exceeded", 4: "parameter", 130: "listener query", 131: "listener report", 132: "listener done",
		133: "router solicit", 134: "router advert", 136: "neighbor advert", 137: "redirect", 138: "renumber", 139: "query", 140: "answer",
		141: "inverse solicit", 142: "inverse advert", 143: "listener report 2", 144: "home request", 145: "home reply", 146: "prefix solicit",
		147: "prefix advert", 148: "path solicit", 149: "path advert", 151: "router multicast", 152: "router multicast solicit", 153: "router multicast end",
	} {
		all["icmp6 "+name] = icmp(kind)
	}
	return all
}

func linkMore() map[string]stack {
	plain := func(kind layers.EthernetType) stack { return stack{ether(kind), raw(46)} }
	decnet := func(length int, flags byte, dst, src uint16) stack {
		header := make([]byte, 46)
		binary.LittleEndian.PutUint16(header, uint16(length))
		header[2] = flags
		binary.LittleEndian.PutUint16(header[3:], dst)
		binary.LittleEndian.PutUint16(header[5:], src)
		return stack{ether(0x6003), gopacket.Payload(header)}
	}
	isis := func(kind byte) stack {
		return llc(0xfe, 0xfe, 0x03, 0x83, 27, 1, 0, kind, 1, 0, 0)
	}
	return map[string]stack{
		"moprc":             plain(0x6002),
		"sca":               plain(0x6007),
		"trail":             plain(0x1000),
		"longest length":    plain(1500),
		"shortest type":     plain(1536),
		"macsec":            plain(0x88e5),
		"ptp":               plain(0x88f7),
		"decnet short":      decnet(20, 0x02, 10<<10|1, 3<<10|2),
		"decnet padded":     decnet(20, 0x81, 0x0202, 0x0204),
		"clnp":              llc(0xfe, 0xfe, 0x03, 0x81),
		"isis l1 hello":     isis(15),
		"isis l2 hello":     isis(16),
		"isis ptp hello":    isis(17),
		"isis l1 lsp":       isis(18),
		"isis l2 lsp":       isis(20),
		"isis l1 csnp":      isis(24),
		"isis l2 csnp":      isis(25),
		"isis l1 psnp":      isis(26),
		"isis l2 psnp":      isis(27),
		"llc sabme":         llc(0x10, 0x10, 0x6f),
		"llc disc":          llc(0x10, 0x10, 0x43),
		"llc ua":            llc(0x10, 0x11, 0x63),
		"llc dm":            llc(0x10, 0x11, 0x0f),
		"llc xid":           llc(0x10, 0x10, 0xaf),
		"llc test":          llc(0x10, 0x10, 0xe3),
		"llc frmr":          llc(0x10, 0x11, 0x87),
		"llc rnr":           llc(0x10, 0x10, 0x05, 0x00),
		"llc rej":           llc(0x10, 0x10, 0x09, 0x00),
		"llc ipx":           llc(0xe0, 0xe0, 0x03),
		"snap ip":           llc(0xaa, 0xaa, 0x03, 0x00, 0x00, 0x00, 0x08, 0x00),
		"snap another":      llc(0xaa, 0xaa, 0x03, 0x00, 0x00, 0x0c, 0x20, 0x00),
		"to a group":        {etherTo(net.HardwareAddr{1, 0, 0x5e, 1, 2, 3}, etIP), ip4("10.0.0.3", "225.1.2.3", pUDP), udp(5000, 5000)},
		"to itself":         {&layers.Ethernet{SrcMAC: mac(4), DstMAC: mac(4), EthernetType: etIP}, ip4("127.0.0.1", "127.0.0.1", pTCP), tcp(5, 5)},
		"pppoe terminate":   {ether(layers.EthernetTypePPPoEDiscovery), &layers.PPPoE{Version: 1, Type: 1, Code: layers.PPPoECodePADT, SessionId: 0x27}, raw(4)},
		"pppoe lcp":         {ether(layers.EthernetTypePPPoESession), &layers.PPPoE{Version: 1, Type: 1, SessionId: 0x27}, gopacket.Payload{0xc0, 0x21, 1, 1, 0, 4}},
		"mpls of three":     {ether(layers.EthernetTypeMPLSUnicast), label(16, false), label(17, false), label(18, true), ip6("fd00::1", "fd00::2", pTCP), tcp(1, 80)},
		"mpls of no bottom": {ether(layers.EthernetTypeMPLSUnicast), label(1024, false), raw(40)},
		"vlan 4095":         {ether(layers.EthernetTypeDot1Q), tag(4095, etIP), ip4("10.0.0.1", "10.0.0.2", pUDP), udp(1, 2)},
		"old service tag":   {ether(0x9100), tag(100, etIP), ip4("10.0.0.1", "10.0.0.2", pUDP), udp(1, 53)},
		"vlan of pppoe":     {ether(layers.EthernetTypeDot1Q), tag(100, layers.EthernetTypePPPoESession), &layers.PPPoE{Version: 1, Type: 1, SessionId: 0x27}, &layers.PPP{PPPType: layers.PPPTypeIPv4}, ip4("10.0.0.1", "10.0.0.2", pTCP), tcp(1, 80)},
		"vlan of mpls":      {ether(layers.EthernetTypeDot1Q), tag(100, layers.EthernetTypeMPLSUnicast), label(1024, true), ip4("10.0.0.1", "10.0.0.2", pTCP), tcp(1, 80)},
		"vlan of stp":       {ether(layers.EthernetTypeDot1Q), tag(100, 43), gopacket.Payload{0x42, 0x42, 0x03}, raw(40)},
	}
}

func tunnels() map[string]stack {
	vxlan := func(id uint32, inner ...gopacket.SerializableLayer) stack {
		return append(stack{
			ether(etIP), ip4("10.5.0.1", "10.5.0.2", pUDP), udp(40000, 4789), &layers.VXLAN{ValidIDFlag: true, VNI: id},
		}, inner...)
	}
	// optional is a Geneve header with options, over IPv6.
	optional := gopacket.Payload{2, 0, 0x08, 0x00, 0, 0, 0xb, 0, 1, 2, 3, 1, 0, 0, 0, 7}
	return map[string]stack{
		"vxlan 7":             vxlan(7, ether(etIP), ip4("10.0.0.1", "10.0.0.2", pTCP), tcp(1, 80)),
		"vxlan 8":             vxlan(8, ether(etIP6), ip6("fd00::1", "fd00::2", pUDP), udp(53, 53)),
		"geneve with options": {ether(etIP), ip4("10.5.0.1", "10.5.0.2", pUDP), udp(33333, 6081), optional, ip4("10.0.0.3", "10.0.0.4", pUDP), udp(53, 99)},
		"geneve on ip6":       {ether(etIP6), ip6("fd05::1", "fd05::2", pUDP), udp(33333, 6081), geneve(0x86dd, 0xb), ip6("fd00::1", "fd00::2", pTCP), tcp(1, 80)},
		"geneve of vlan":      {ether(etIP), ip4("10.5.0.1", "10.5.0.2", pUDP), udp(33334, 6081), geneve(0x6558, 0xd), ether(layers.EthernetTypeDot1Q), tag(100, etIP), ip4("10.0.0.1", "10.0.0.2", pUDP), udp(53, 53)},
		"geneve version 1":    {ether(etIP), ip4("10.5.0.1", "10.5.0.2", pUDP), udp(33334, 6081), gopacket.Payload{0x40, 0, 0x08, 0, 0, 0, 0xb, 0}, ip4("10.0.0.1", "10.0.0.2", pTCP), tcp(1, 80)},
		"geneve cut":          {ether(etIP), ip4("10.5.0.1", "10.5.0.2", pUDP), udp(33334, 6081), gopacket.Payload{0, 0, 8}},
	}
}
