package packetview

import "encoding/binary"

// Flags of a TCP header (RFC 9293, section 3.1).
const (
	flagFIN = 1 << iota
	flagSYN
	flagRST
	_
	flagACK
)

const minTCPHeader = 20

// segment is one TCP segment.
type segment struct {
	at       uint64 // nanoseconds since 1970
	seq, ack uint32
	flags    uint8
	window   uint16 // as in the header, not scaled
	// payload as far as it was captured, and its length on the wire in bytes.
	payload []byte
	length  int
}

func (s *segment) has(flags uint8) bool { return s.flags&flags != 0 }

// end returns the sequence number after the segment. SYN and FIN take one.
func (s *segment) end() uint32 {
	n := s.seq + uint32(s.length)
	if s.has(flagSYN | flagFIN) {
		n++
	}
	return n
}

// parseSegment reads a header that may be truncated behind its fixed part. wire is its length with its payload on the
// wire, in bytes.
func parseSegment(b []byte, wire int, at uint64) (s segment, ok bool) {
	if len(b) < minTCPHeader {
		return segment{}, false
	}
	header := int(b[12]>>4) * 4
	if header < minTCPHeader || header > wire {
		return segment{}, false
	}
	s = segment{
		at: at, seq: binary.BigEndian.Uint32(b[4:]), ack: binary.BigEndian.Uint32(b[8:]), flags: b[13],
		window: binary.BigEndian.Uint16(b[14:]), length: wire - header,
	}
	if header < len(b) {
		s.payload = b[header:]
	}
	return s, true
}

// before reports whether a sequence number comes before another. They wrap around.
func before(a, b uint32) bool { return int32(a-b) < 0 }
