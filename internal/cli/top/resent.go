package top

import (
	"encoding/binary"

	"github.com/sonde-operator/sonde/internal/cli/conversations"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// resent counts the TCP segments of a conversation whose bytes were all sent before, as far as the packets show it. The report of a file
// judges them by acknowledgements and times, too (package packetview).
type resent struct {
	count int64

	// iface is where the first packet was captured. The same segment may be captured at other interfaces, too.
	iface      *pcapng.Interface
	atob, btoa sent
}

// sent says up to where one side has sent.
type sent struct {
	end   uint32
	known bool
}

func (r *resent) add(iface *pcapng.Interface, fromA bool, p *conversations.Packet) {
	if r.iface == nil {
		r.iface = iface
	}
	if p.Protocol != "TCP" || iface != r.iface {
		return
	}
	side := &r.btoa
	if fromA {
		side = &r.atob
	}
	if first, length := segmentOf(p); length > 0 && side.again(first, length) {
		r.count++
	}
}

// again reports whether all of a segment was sent before.
func (s *sent) again(first, length uint32) bool {
	end := first + length
	if s.known && int32(end-s.end) <= 0 { // sequence numbers wrap
		return true
	}
	s.end, s.known = end, true
	return false
}

// segmentOf returns the sequence number and the length of a segment's data in bytes; zero if it has none, or if its header was not
// captured.
func segmentOf(p *conversations.Packet) (first, length uint32) {
	const offsetAt = 12
	if len(p.Transport) <= offsetAt {
		return 0, 0
	}
	header := int(p.Transport[offsetAt]>>4) * 4
	return binary.BigEndian.Uint32(p.Transport[4:]), uint32(max(0, p.TransportLength-header))
}
