// Package traffic builds captures and traces for tests, always the same: packets of TCP, UDP, DNS and HTTP, and calls.
package traffic

import (
	"bytes"
	"cmp"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Start is when each File begins.
var Start = time.Date(2026, 11, 20, 13, 41, 20, 0, time.UTC)

// File is a pcapng file that is being built. Its clock stands still until Wait.
type File struct {
	// Snap is how many bytes of the next packets are captured; zero means all.
	Snap int

	head, tail []byte
	packets    []pcapng.Packet
	now        time.Time
	id         uint16
	vlan       []uint16 // of each interface, or zero
}

// New begins a file whose section has the comments of Sonde's probe.
func New(comments ...string) *File {
	return &File{
		head: pcapng.AppendSection(nil, &pcapng.Section{Hardware: "amd64", OS: "Linux 6.12.0", Application: "sonde test", Comments: comments}),
		now:  Start,
	}
}

// Bytes returns the file, with its packets in the order of time.
func (f *File) Bytes() []byte {
	slices.SortStableFunc(f.packets, func(a, b pcapng.Packet) int { return cmp.Compare(a.Time, b.Time) })
	b := f.head
	for i := range f.packets {
		b = pcapng.AppendPacket(b, &f.packets[i])
	}
	return append(b, f.tail...)
}

// Wait moves the file's clock.
func (f *File) Wait(d time.Duration) { f.now = f.now.Add(d) }

// At sets the file's clock.
func (f *File) At(t time.Time) { f.now = t }

// Interface adds an interface of Ethernet and returns its number. A vlan above zero tags its packets.
func (f *File) Interface(name, description string, vlan uint16) uint32 {
	f.head = pcapng.AppendInterface(f.head, &pcapng.Interface{Name: name, Description: description, LinkType: pcapng.LinkTypeEthernet, SnapLen: 1 << 18})
	f.vlan = append(f.vlan, vlan)
	return uint32(len(f.vlan) - 1)
}

// Statistics ends an interface, whose capture began at a time.
func (f *File) Statistics(iface uint32, from time.Time, received, dropped uint64) {
	start, now := uint64(from.UnixNano()), uint64(f.now.UnixNano())
	f.tail = pcapng.AppendStatistics(f.tail, &pcapng.Statistics{
		Interface: iface, Time: now, Start: start, End: now, Received: &received, IfDrop: &dropped,
	})
}

// Frame adds a packet at the file's clock.
func (f *File) Frame(iface uint32, flags pcapng.Flags, frame []byte) {
	data := bytes.Clone(frame)
	if f.Snap > 0 {
		data = data[:min(f.Snap, len(data))]
	}
	f.packets = append(f.packets, pcapng.Packet{
		Interface: iface, Time: uint64(f.now.UnixNano()), Data: data, Length: uint32(len(frame)), Flags: flags,
	})
}

// UDP adds a datagram.
func (f *File) UDP(iface uint32, flags pcapng.Flags, from, to netip.AddrPort, payload []byte) {
	udp := &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}
	f.Frame(iface, flags, f.build(iface, layers.IPProtocolUDP, from.Addr(), to.Addr(), udp, gopacket.Payload(payload)))
}

// build returns a frame. Its checksums are right, and its layers have the order of the wire.
func (f *File) build(iface uint32, proto layers.IPProtocol, from, to netip.Addr, upper ...gopacket.SerializableLayer) []byte {
	network, kind := f.network(proto, from, to)
	for _, l := range upper {
		if l, ok := l.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok {
			_ = l.SetNetworkLayerForChecksum(network.(gopacket.NetworkLayer))
		}
	}
	eth := &layers.Ethernet{SrcMAC: mac(from), DstMAC: mac(to), EthernetType: kind}
	all := []gopacket.SerializableLayer{eth}
	if id := f.vlan[iface]; id > 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		all = append(all, &layers.Dot1Q{VLANIdentifier: id, Type: kind})
	}
	all = append(append(all, network), upper...)
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		panic(err) // the layers of this package are complete
	}
	return b.Bytes()
}

func (f *File) network(proto layers.IPProtocol, from, to netip.Addr) (gopacket.SerializableLayer, layers.EthernetType) {
	if from.Is6() {
		return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}, layers.EthernetTypeIPv6
	}
	f.id++
	return &layers.IPv4{Version: 4, TTL: 64, Id: f.id, Protocol: proto, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}, layers.EthernetTypeIPv4
}

// mac makes a locally administered address of the end of an IP address.
func mac(a netip.Addr) net.HardwareAddr {
	b := a.AsSlice()
	return net.HardwareAddr{2, 0, 0, b[len(b)-3], b[len(b)-2], b[len(b)-1]}
}
