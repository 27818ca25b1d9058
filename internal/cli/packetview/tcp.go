package packetview

import (
	"math"
	"time"
)

// verdict says what a segment is, by the rules of Wireshark's TCP analysis.
type verdict uint8

const (
	ordinary verdict = iota
	outOfOrder
	retransmission
	fastRetransmission
	spuriousRetransmission
)

const (
	// fastWithin is how soon after a duplicate acknowledgement a fast retransmission comes, in nanoseconds.
	fastWithin = uint64(20 * time.Millisecond)
	// fastAfter is how many duplicate acknowledgements ask for it.
	fastAfter = 2
	// reorderWithin is how late a segment may come to be out of order while the round-trip time is unknown, in nanoseconds.
	reorderWithin = uint64(3 * time.Millisecond)
	// unseen replaces the number of duplicates when the peer acknowledges data that was not captured. Wireshark takes it for many
	// duplicates.
	unseen = math.MaxUint32
)

// side is what one end of a connection has sent.
type side struct {
	base  uint32 // initial sequence number
	based bool   // base is known
	// next is the highest sequence number so far; zero means none. nextAt is when it was sent.
	next   uint32
	nextAt uint64
	// toAck is the highest sequence number without a gap before it; zero means none.
	toAck uint32
	// ack and window of the last segment, and when it was sent.
	ack    uint32
	ackAt  uint64
	window uint16
	sent   bool // there was a segment
	// duplicates of the last acknowledgement, or unseen.
	duplicates uint32
	keepAlive  bool // the last segment was one
}

// connection is one TCP connection. Its first side is that of the conversation's A.
type connection struct {
	sides [2]side
	// synAt is when the last SYN was sent; zero if none was captured.
	synAt uint64
	// rtt is the initial round-trip time in nanoseconds; zero while it is unknown.
	rtt uint64
}

// begins reports whether a segment begins another connection on the same ports.
func (c *connection) begins(s *segment, from int) bool {
	fwd := &c.sides[from]
	return s.flags&(flagSYN|flagACK) == flagSYN && fwd.based && s.seq != fwd.base
}

// observe adds a segment. measured says that it completes the handshake, which sets rtt.
func (c *connection) observe(s *segment, from int) (v verdict, measured bool) {
	fwd, rev := &c.sides[from], &c.sides[1-from]
	if !fwd.based {
		fwd.base, fwd.based = s.seq, true
		if !s.has(flagSYN) {
			fwd.base--
		}
	}
	if !rev.based && s.has(flagACK) {
		rev.base, rev.based = s.ack-1, true
	}
	v = c.analyze(s, fwd, rev)
	switch s.flags & (flagSYN | flagACK) {
	case flagSYN:
		c.synAt = s.at
	case flagACK:
		if c.synAt > 0 && c.rtt == 0 && s.at > c.synAt {
			c.rtt, measured = s.at-c.synAt, true
		}
	}
	return v, measured
}

func (c *connection) analyze(s *segment, fwd, rev *side) verdict {
	probe := s.length == 1 && s.seq == fwd.next && rev.sent && rev.window == 0
	keepAlive := !probe && s.length <= 1 && s.seq == fwd.next-1 && !s.has(flagSYN|flagFIN|flagRST)
	if !probe {
		fwd.countDuplicate(s, rev)
	}
	if s.ack != fwd.ack {
		fwd.duplicates = 0
	}
	rev.acknowledge(s)
	v := ordinary
	if !keepAlive && (s.length > 0 || s.has(flagSYN|flagFIN)) {
		v = c.judge(s, fwd, rev)
	}
	fwd.advance(s, probe)
	fwd.window, fwd.ack, fwd.ackAt, fwd.sent = s.window, s.ack, s.at, true
	fwd.keepAlive = keepAlive
	return v
}

// countDuplicate counts an acknowledgement that repeats the last one. Answers to keep-alives do not count.
func (fwd *side) countDuplicate(s *segment, rev *side) {
	repeats := s.length == 0 && s.window != 0 && s.window == fwd.window && s.seq == fwd.next && s.ack == fwd.ack &&
		!s.has(flagSYN|flagFIN|flagRST)
	if !repeats || rev.keepAlive {
		return
	}
	if fwd.duplicates == unseen {
		fwd.duplicates = 0
	}
	fwd.duplicates++
}

// acknowledge notes that the other side acknowledges data that was not captured.
func (fwd *side) acknowledge(s *segment) {
	if !s.has(flagACK) || fwd.toAck == 0 || !before(fwd.toAck, s.ack) {
		return
	}
	if fwd.toAck != fwd.next {
		fwd.toAck = fwd.next
	} else {
		fwd.duplicates = unseen
	}
}

// judge decides what a segment is that has data, SYN or FIN.
func (c *connection) judge(s *segment, fwd, rev *side) verdict {
	repeats := fwd.next != 0 && before(s.seq, fwd.next)
	if s.length > 1 && fwd.next-1 == s.seq { // new data after a zero-window probe
		repeats = false
	}
	end := s.seq + uint32(s.length)
	if s.length > 0 && rev.ack != 0 && !before(rev.ack, end) {
		return spuriousRetransmission
	}
	if !repeats {
		return ordinary
	}
	if rev.duplicates >= fastAfter && rev.ack == s.seq && s.at-rev.ackAt < fastWithin {
		return fastRetransmission
	}
	within := reorderWithin
	if c.rtt > 0 {
		within = c.rtt
	}
	if s.at-fwd.nextAt < within && fwd.next != s.end() {
		return outOfOrder
	}
	return retransmission
}

// advance moves the highest sequence numbers. A zero-window probe does not.
func (fwd *side) advance(s *segment, probe bool) {
	if probe {
		return
	}
	end := s.end()
	if before(fwd.next, end) || fwd.next == 0 {
		fwd.next, fwd.nextAt = end, s.at
	}
	if s.seq == fwd.toAck || fwd.toAck == 0 {
		fwd.toAck = fwd.next
	}
}
