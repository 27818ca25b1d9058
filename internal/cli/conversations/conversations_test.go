package conversations

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

func ethernet(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: t}
}

func ip4(proto layers.IPProtocol, from, to string) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: net.ParseIP(from).To4(), DstIP: net.ParseIP(to).To4()}
}

func ip6(next layers.IPProtocol, from, to string) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: next, SrcIP: net.ParseIP(from), DstIP: net.ParseIP(to)}
}

func tcp(from, to uint16) *layers.TCP {
	return &layers.TCP{SrcPort: layers.TCPPort(from), DstPort: layers.TCPPort(to), ACK: true}
}

func udp(from, to uint16) *layers.UDP {
	return &layers.UDP{SrcPort: layers.UDPPort(from), DstPort: layers.UDPPort(to)}
}

func frame(t *testing.T, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, parts...); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b.Bytes())
}

func TestDecode(t *testing.T) {
	tcp4 := frame(t, ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolTCP, "10.0.0.1", "10.0.0.2"), tcp(1234, 80))
	fragment := ip4(layers.IPProtocolUDP, "10.0.0.1", "10.0.0.2")
	fragment.FragOffset = 100
	firstFragment := ip4(layers.IPProtocolUDP, "10.0.0.1", "10.0.0.2")
	firstFragment.Flags = layers.IPv4MoreFragments
	big := frame(t, ethernet(layers.EthernetTypeIPv6), ip6(layers.IPProtocolTCP, "fd00::1", "fd00::2"), tcp(1, 2))
	big[14+4], big[14+5] = 0, 0 // a segment of more than 64 KiB has length 0
	fragment6 := []byte{byte(layers.IPProtocolUDP), 0, 0x00, 0xa0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}
	hopByHop := append([]byte{byte(layers.IPProtocolUDP), 0, 1, 4, 0, 0, 0, 0}, 0, 7, 0, 9, 0, 8, 0, 0)
	arp := &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
		SourceHwAddress: macA, SourceProtAddress: net.IP{10, 0, 0, 1}, DstHwAddress: make([]byte, 6), DstProtAddress: net.IP{10, 0, 0, 2},
	}
	tests := map[string]struct {
		link pcapng.LinkType
		data []byte
		want string
	}{
		"TCP over IPv4":       {pcapng.LinkTypeEthernet, tcp4, "TCP 10.0.0.1:1234 10.0.0.2:80"},
		"without a link":      {pcapng.LinkTypeRaw, tcp4[14:], "TCP 10.0.0.1:1234 10.0.0.2:80"},
		"only ports captured": {pcapng.LinkTypeEthernet, tcp4[:14+20+4], "TCP 10.0.0.1:1234 10.0.0.2:80"},
		"not even ports":      {pcapng.LinkTypeEthernet, tcp4[:14+20+3], "TCP 10.0.0.1:0 10.0.0.2:0"},
		"half an IP header":   {pcapng.LinkTypeEthernet, tcp4[:14+10], "IPv4 invalid AddrPort invalid AddrPort"},
		"half a link header":  {pcapng.LinkTypeEthernet, tcp4[:5], "unknown invalid AddrPort invalid AddrPort"},
		"nothing":             {pcapng.LinkTypeRaw, nil, "IPv4 invalid AddrPort invalid AddrPort"},
		"unknown link":        {pcapng.LinkType(9999), tcp4, "unknown invalid AddrPort invalid AddrPort"},
		"two VLANs": {
			pcapng.LinkTypeEthernet,
			frame(t, ethernet(layers.EthernetTypeQinQ), &layers.Dot1Q{VLANIdentifier: 1, Type: layers.EthernetTypeDot1Q},
				&layers.Dot1Q{VLANIdentifier: 2, Type: layers.EthernetTypeIPv4}, ip4(layers.IPProtocolUDP, "10.0.0.1", "10.0.0.2"), udp(53, 5353)),
			"UDP 10.0.0.1:53 10.0.0.2:5353",
		},
		"UDP over IPv6": {
			pcapng.LinkTypeEthernet,
			frame(t, ethernet(layers.EthernetTypeIPv6), ip6(layers.IPProtocolUDP, "fd00::1", "fd00::2"), udp(7, 9)),
			"UDP [fd00::1]:7 [fd00::2]:9",
		},
		"a very big segment": {pcapng.LinkTypeEthernet, big, "TCP [fd00::1]:1 [fd00::2]:2"},
		"behind hop-by-hop options": {
			pcapng.LinkTypeEthernet,
			frame(t, ethernet(layers.EthernetTypeIPv6), ip6(layers.IPProtocolIPv6HopByHop, "fd00::1", "fd00::2"), gopacket.Payload(hopByHop)),
			"UDP [fd00::1]:7 [fd00::2]:9",
		},
		"behind destination options": {
			pcapng.LinkTypeEthernet,
			frame(t, ethernet(layers.EthernetTypeIPv6), ip6(layers.IPProtocolIPv6Destination, "fd00::1", "fd00::2"), gopacket.Payload(hopByHop)),
			"UDP [fd00::1]:7 [fd00::2]:9",
		},
		"a fragment behind the first": {
			pcapng.LinkTypeEthernet, frame(t, ethernet(layers.EthernetTypeIPv4), fragment, gopacket.Payload("abcdefgh")), "UDP 10.0.0.1:0 10.0.0.2:0",
		},
		"the first fragment": {
			pcapng.LinkTypeEthernet, frame(t, ethernet(layers.EthernetTypeIPv4), firstFragment, udp(5, 6)), "UDP 10.0.0.1:5 10.0.0.2:6",
		},
		"a fragment of IPv6": {
			pcapng.LinkTypeEthernet,
			frame(t, ethernet(layers.EthernetTypeIPv6), ip6(layers.IPProtocolIPv6Fragment, "fd00::1", "fd00::2"), gopacket.Payload(fragment6)),
			"UDP [fd00::1]:0 [fd00::2]:0",
		},
		"ICMP": {
			pcapng.LinkTypeEthernet,
			frame(t, ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolICMPv4, "10.0.0.1", "10.0.0.2"), gopacket.Payload("\x08\x00ab")),
			"ICMP 10.0.0.1:0 10.0.0.2:0",
		},
		"ARP":            {pcapng.LinkTypeEthernet, frame(t, ethernet(layers.EthernetTypeARP), arp), "ARP 10.0.0.1:0 10.0.0.2:0"},
		"something else": {pcapng.LinkTypeEthernet, frame(t, ethernet(layers.EthernetTypeLinkLayerDiscovery), gopacket.Payload("x")), "LinkLayerDiscovery invalid AddrPort invalid AddrPort"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var d Decoder
			p := d.Decode(tc.link, tc.data, len(tc.data))
			if got := p.Protocol + " " + p.From.String() + " " + p.To.String(); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// capture builds files.
type capture struct{ b []byte }

func newCapture(descriptions ...string) *capture {
	c := &capture{b: pcapng.AppendSection(nil, &pcapng.Section{})}
	for _, d := range descriptions {
		c.b = pcapng.AppendInterface(c.b, &pcapng.Interface{Name: "eth0", Description: d, LinkType: pcapng.LinkTypeEthernet})
	}
	return c
}

func (c *capture) add(iface uint32, second uint64, flags pcapng.Flags, length uint32, data []byte) {
	c.b = pcapng.AppendPacket(c.b, &pcapng.Packet{Interface: iface, Time: second * 1e9, Data: data, Length: length, Flags: flags})
}

func at(second int64) time.Time { return time.Unix(second, 0).UTC() }

func TestRead(t *testing.T) {
	request := frame(t, ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolTCP, "10.0.0.9", "10.0.0.2"), tcp(1234, 80))
	answer := frame(t, ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolTCP, "10.0.0.2", "10.0.0.9"), tcp(80, 1234))
	query := frame(t, ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP, "10.0.0.9", "10.0.0.3"), udp(1234, 53))
	c := newCapture("shop/client, node n1", "shop/web, node n2")
	c.add(0, 1, pcapng.Outbound, 100, request)
	c.add(1, 2, pcapng.Inbound, 100, request)
	c.add(1, 3, pcapng.Outbound, 1000, answer)
	c.add(0, 4, pcapng.Outbound, 50, query)
	got, err := Read(bytes.NewReader(c.b))
	if err != nil {
		t.Fatal(err)
	}
	client, web, dns := netip.MustParseAddrPort("10.0.0.9:1234"), netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("10.0.0.3:53")
	want := Result{
		Total: Count{Packets: 4, Bytes: 1250},
		Conversations: []Conversation{
			{
				Protocol: "TCP", A: client, B: web, AName: "shop/client", BName: "shop/web",
				AtoB: Count{2, 200}, BtoA: Count{1, 1000}, First: at(1), Last: at(3),
			},
			{Protocol: "UDP", A: client, B: dns, AName: "shop/client", AtoB: Count{1, 50}, First: at(4), Last: at(4)},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	got, err = Read(bytes.NewReader(c.b[:len(c.b)-5]))
	if err != nil || !got.Truncated || got.Total.Packets != 3 {
		t.Errorf("cut in the last packet: truncated %t, %d packets, %v", got.Truncated, got.Total.Packets, err)
	}
	if _, err := Read(strings.NewReader("GET / HTTP/1.1\r\n\r\n")); !errors.Is(err, pcapng.ErrFormat) {
		t.Errorf("no capture at all: %v", err)
	}
}

func TestNames(t *testing.T) {
	from := func(addr string) []byte {
		return frame(t, ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP, addr, "192.0.2.1"), udp(1, 2))
	}
	from6 := func(addr string) []byte {
		return frame(t, ethernet(layers.EthernetTypeIPv6), ip6(layers.IPProtocolUDP, addr, "2001:db8::1"), udp(1, 2))
	}
	tests := map[string]struct {
		descriptions []string
		packets      map[uint32][][]byte
		flags        pcapng.Flags
		want         map[string]string
	}{
		"a Pod of both families": {
			[]string{"shop/web, node n1"},
			map[uint32][][]byte{0: {from("10.0.0.1"), from6("fd00::1"), from6("fe80::1")}},
			pcapng.Outbound,
			map[string]string{"10.0.0.1": "shop/web", "fd00::1": "shop/web"},
		},
		"what came in is not its own":     {[]string{"shop/web, node n1"}, map[uint32][][]byte{0: {from("10.0.0.1")}}, pcapng.Inbound, nil},
		"a Pod in the node's network":     {[]string{"kube-system/proxy, node n1"}, map[uint32][][]byte{0: {from("10.0.0.1"), from("10.0.0.2")}}, pcapng.Outbound, nil},
		"two Pods of one address":         {[]string{"a/x, node n1", "b/x, node n1"}, map[uint32][][]byte{0: {from("10.0.0.1")}, 1: {from("10.0.0.1")}}, pcapng.Outbound, nil},
		"a description of something else": {[]string{"Intel E810 on PCI"}, map[uint32][][]byte{0: {from("10.0.0.1")}}, pcapng.Outbound, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCapture(tc.descriptions...)
			for iface, frames := range tc.packets {
				for _, f := range frames {
					c.add(iface, 1, tc.flags, uint32(len(f)), f)
				}
			}
			r, err := Read(bytes.NewReader(c.b))
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, conversation := range r.Conversations {
				if conversation.AName != "" {
					got[conversation.A.Addr().String()] = conversation.AName
				}
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(uint16(1), []byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00E\x00\x00\x14"))
	f.Add(uint16(1), []byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x86\xdd\x60\x00\x00\x00\x00\x08\x00\x40"))
	f.Add(uint16(101), []byte{0x60, 0, 0, 0, 0, 8, 44, 64})
	f.Add(uint16(113), make([]byte, 20))
	f.Fuzz(func(t *testing.T, link uint16, data []byte) {
		var d Decoder
		p := d.Decode(pcapng.LinkType(link), data, len(data)+100)
		if p.Protocol == "" {
			t.Error("a packet without a protocol")
		}
		if p.From.IsValid() != p.To.IsValid() {
			t.Errorf("one address: %v and %v", p.From, p.To)
		}
		if len(p.Transport) > p.TransportLength {
			t.Errorf("%d bytes of transport, of %d on the wire", len(p.Transport), p.TransportLength)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	c := newCapture("shop/web, node n1")
	packet := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(packet, gopacket.SerializeOptions{FixLengths: true},
		ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolTCP, "10.0.0.9", "10.0.0.2"), tcp(1234, 80), gopacket.Payload(make([]byte, 1000))); err != nil {
		b.Fatal(err)
	}
	for i := range 10_000 {
		c.add(0, uint64(i), pcapng.Outbound, 1054, packet.Bytes())
	}
	b.SetBytes(int64(len(c.b)))
	for b.Loop() {
		if _, err := Read(bytes.NewReader(c.b)); err != nil {
			b.Fatal(err)
		}
	}
}

// A full Counter counts other conversations together, and has room when old ones are forgotten.
func TestForget(t *testing.T) {
	var decoder Decoder
	c := NewCounter(1)
	iface := &pcapng.Interface{LinkType: pcapng.LinkTypeEthernet}
	add := func(port uint16, at uint64) {
		data := frame(t, ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP, "10.0.0.1", "10.0.0.2"), udp(port, 53))
		decoded := decoder.Decode(iface.LinkType, data, len(data))
		c.Add(iface, &pcapng.Packet{Time: at, Data: data, Length: uint32(len(data))}, &decoded)
	}
	add(1, 10)
	add(2, 20)
	if r := c.result(); len(r.Conversations) != 1 || r.Other.Packets != 1 {
		t.Errorf("%+v", r)
	}
	c.Forget(time.Unix(0, 15))
	add(3, 30)
	if r := c.result(); len(r.Conversations) != 1 || r.Conversations[0].A.Port() != 3 || r.Total.Packets != 3 {
		t.Errorf("%+v", r)
	}
}
