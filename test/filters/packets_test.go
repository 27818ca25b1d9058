package filters

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/test/filters/simulator"
	"github.com/sonde-operator/sonde/test/frames"
)

// packet is a packet on which filters decide.
type packet struct {
	name string
	sim  simulator.Packet
}

// cuts are the lengths at which frames are cut, within headers and between them.
var cuts = []int{14, 15, 17, 20, 26, 34, 37, 38, 42, 47, 50, 54, 58, 62, 78}

// ethernetPackets turns each frame into an arriving packet, a leaving one, one whose VLAN tag the device took out, and
// cut ones.
func ethernetPackets(t *testing.T) []packet {
	t.Helper()
	var all []packet
	for name, frame := range allFrames(t) {
		in := simulator.Packet{Data: frame, Network: 14, Protocol: etherType(frame, 12), Interface: 2}
		out := in
		out.Type = unix.PACKET_OUTGOING
		all = append(all, packet{name, in}, packet{name + " out", out})
		if p := in.Protocol; p == unix.ETH_P_8021Q || p == unix.ETH_P_8021AD {
			all = append(all, packet{name + " untagged", untagged(in)})
		}
		for _, n := range cuts {
			if n < len(frame) {
				cut := in
				cut.Data = frame[:n:n]
				all = append(all, packet{fmt.Sprintf("%s cut at %d", name, n), cut})
			}
		}
	}
	return sorted(all)
}

// rawPackets returns the contents of the frames: IP packets, and some that are not, as a tun device may pass on.
func rawPackets(t *testing.T) []packet {
	t.Helper()
	var all []packet
	for name, frame := range allFrames(t) {
		if len(frame) <= 14 {
			continue
		}
		in := simulator.Packet{Data: frame[14:], Protocol: etherType(frame, 12), Interface: 2}
		out := in
		out.Type = unix.PACKET_OUTGOING
		all = append(all, packet{name, in}, packet{name + " out", out})
		for _, n := range cuts {
			if n-14 > 0 && n < len(frame) {
				cut := in
				cut.Data = frame[14:n:n]
				all = append(all, packet{fmt.Sprintf("%s cut at %d", name, n-14), cut})
			}
		}
	}
	return sorted(all)
}

func sorted(packets []packet) []packet {
	slices.SortFunc(packets, func(a, b packet) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	for i := range packets {
		packets[i].sim.Linear = len(packets[i].sim.Data)
	}
	return packets
}

func allFrames(t *testing.T) map[string][]byte {
	t.Helper()
	all, err := frames.All()
	if err != nil {
		t.Fatal(err)
	}
	more, err := frames.More()
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, more)
	return all
}

func etherType(frame []byte, at int) uint16 {
	if kind := binary.BigEndian.Uint16(frame[at:]); kind >= 0x600 {
		return kind
	}
	return unix.ETH_P_802_2
}

func untagged(p simulator.Packet) simulator.Packet {
	tagged := p.Data
	p.Data = slices.Concat(tagged[:12], tagged[16:])
	p.VlanPresent, p.VlanTag, p.VlanProto = 1, uint32(binary.BigEndian.Uint16(tagged[14:])), p.Protocol
	p.Protocol = etherType(tagged, 16)
	return p
}

// packetsOf returns the packets of a link type.
func packetsOf(t *testing.T, link pcapfilter.LinkType) []packet {
	t.Helper()
	if link == pcapfilter.LinkRaw {
		return rawPackets(t)
	}
	return ethernetPackets(t)
}
