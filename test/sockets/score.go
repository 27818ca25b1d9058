package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/podnet"
)

// Score counts the packets of one port by what they say.
type Score struct {
	Right, Wrong, Unknown int
	Reasons               map[pcapng.ProcessReason]int
	Example               string // of a wrong packet
	Last                  *pcapng.Process
}

// EachBlock calls a function for each block of a file.
func EachBlock(tb testing.TB, path string, visit func(pcapng.Block)) {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for r := pcapng.NewReader(f); ; {
		b, err := r.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, pcapng.ErrTruncated) { // the capture still writes it
			return
		}
		if err != nil {
			tb.Fatal(err)
		}
		visit(b)
	}
}

// EachPacket calls a function for each packet of a file.
func EachPacket(tb testing.TB, path string, visit func(*pcapng.Packet)) {
	tb.Helper()
	EachBlock(tb, path, func(b pcapng.Block) {
		if p, ok := b.(*pcapng.Packet); ok {
			visit(p)
		}
	})
}

// Scores compares the packets of a file with the holders of the target's ports.
func (w *World) Scores(path string) map[uint16]*Score {
	w.tb.Helper()
	all := map[uint16]*Score{}
	EachPacket(w.tb, path, func(p *pcapng.Packet) {
		port, ok := TargetPort(p.Data)
		if !ok || slices.Contains(w.Answers, port) && (p.Flags.Direction() != pcapng.Outbound || p.Length < 80) {
			return
		}
		if all[port] == nil {
			all[port] = &Score{Reasons: map[pcapng.ProcessReason]int{}}
		}
		all[port].add(p, w.PIDs[port], slices.Contains(w.Either, port))
	})
	return all
}

// Changed are the comments of a packet whose process was renamed, or replaced in its record, while the packet was written.
var Changed = []string{"process unknown"}

func (s *Score) add(p *pcapng.Packet, pids []uint32, either bool) {
	s.Last = p.Process
	switch {
	case p.Process == nil && slices.Equal(p.Comments, Changed):
		s.Unknown++
	case p.Process == nil || len(p.Comments) != 1 || p.Comments[0] != p.Process.String():
		s.Wrong++
		s.Example = fmt.Sprintf("comments %q, process %v", p.Comments, p.Process)
	case p.Process.Reason != pcapng.ProcessKnown:
		s.Unknown++
		s.Reasons[p.Process.Reason]++
	case (len(pids) == 1 || either) && slices.Contains(pids, p.Process.PID):
		s.Right++
	default:
		s.Wrong++
		s.Example = fmt.Sprintf("%v, want a process of %v", p.Process, pids)
	}
}

// TargetPort returns the target's port of a TCP or UDP packet in an Ethernet frame.
func TargetPort(frame []byte) (uint16, bool) {
	ports, ok := PortsOf(frame)
	if !ok {
		return 0, false
	}
	source := netip.AddrFrom4([4]byte(frame[26:30]))
	if frame[12] == 0x86 {
		source = netip.AddrFrom16([16]byte(frame[22:38]))
	}
	if s := source.String(); s == podnet.TargetIP || s == podnet.TargetV6 {
		return ports[0], true
	}
	return ports[1], true
}

// PortsOf returns source and destination port of a TCP or UDP packet in an Ethernet frame, whose headers have no options.
func PortsOf(frame []byte) (ports [2]uint16, ok bool) {
	const ethernet, ipv4, ipv6, tcp, udp = 14, 20, 40, 6, 17
	if len(frame) < ethernet+ipv4+8 {
		return ports, false
	}
	protocol, at := frame[23], ethernet+ipv4
	switch binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
	case 0x86dd:
		protocol, at = frame[20], ethernet+ipv6
	default:
		return ports, false
	}
	if protocol != tcp && protocol != udp || len(frame) < at+4 {
		return ports, false
	}
	return [2]uint16{binary.BigEndian.Uint16(frame[at:]), binary.BigEndian.Uint16(frame[at+2:])}, true
}

// Report describes the scores of the ports.
func Report(all map[uint16]*Score) string {
	var lines []string
	for port, s := range all {
		lines = append(lines, fmt.Sprintf("port %d: %d right, %d wrong, %d unknown %v %s", port, s.Right, s.Wrong, s.Unknown, s.Reasons, s.Example))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
