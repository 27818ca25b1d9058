package top

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// A segment that was sent before counts once, whatever is around it. The same segment at another interface does not count.
func TestResent(t *testing.T) {
	segment := func(six bool, sequence uint32, data string) []byte {
		b := gopacket.NewSerializeBuffer()
		ip := []gopacket.SerializableLayer{
			&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4},
			&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}},
		}
		if six {
			ip = []gopacket.SerializableLayer{
				&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv6},
				&layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: append([]byte{0xfd}, make([]byte, 15)...), DstIP: append([]byte{0xfe}, make([]byte, 15)...)},
			}
		}
		ip = append(ip, &layers.TCP{SrcPort: 1, DstPort: 2, Seq: sequence}, gopacket.Payload(data))
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, ip...); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	one, two := &pcapng.Interface{LinkType: pcapng.LinkTypeEthernet}, &pcapng.Interface{LinkType: pcapng.LinkTypeEthernet}
	type seen struct {
		at   *pcapng.Interface
		data []byte
	}
	for name, tc := range map[string]struct {
		packets []seen
		want    int64
	}{
		"in order":             {[]seen{{one, segment(false, 10, "abc")}, {one, segment(false, 13, "def")}}, 0},
		"again":                {[]seen{{one, segment(false, 10, "abc")}, {one, segment(false, 10, "abc")}}, 1},
		"a part of it again":   {[]seen{{one, segment(false, 10, "abc")}, {one, segment(false, 11, "b")}}, 1},
		"partly new":           {[]seen{{one, segment(false, 10, "abc")}, {one, segment(false, 11, "bcd")}}, 0},
		"IPv6":                 {[]seen{{one, segment(true, 10, "abc")}, {one, segment(true, 10, "abc")}}, 1},
		"without data":         {[]seen{{one, segment(false, 10, "")}, {one, segment(false, 10, "")}}, 0},
		"at another interface": {[]seen{{one, segment(false, 10, "abc")}, {two, segment(false, 10, "abc")}}, 0},
		"around zero":          {[]seen{{one, segment(false, 1<<32-1, "abc")}, {one, segment(false, 2, "def")}}, 0},
		"cut":                  {[]seen{{one, segment(false, 10, "abc")[:54]}, {one, segment(false, 10, "abc")[:54]}}, 1},
		"no header":            {[]seen{{one, segment(false, 10, "abc")[:40]}, {one, segment(false, 10, "abc")[:40]}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := NewConversations()
			for _, p := range tc.packets {
				c.add(p.at, &pcapng.Packet{Data: p.data, Length: 57})
			}
			if all := c.counter.Sorted(); len(all) != 1 || c.of(all[0]).resent.count != tc.want {
				t.Errorf("%d conversations, %d sent again, want %d", len(all), c.of(all[0]).resent.count, tc.want)
			}
		})
	}
}
