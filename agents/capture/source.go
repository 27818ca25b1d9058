package capture

import (
	"time"

	"github.com/sonde-operator/sonde/internal/pcapng"
)

// source is one interface of the capture: its ring while there is one, and its account.
type source struct {
	ring   *ring // nil once closed
	parked bool  // the socket is off its interface, only the ring's rest is to be taken
	enc    encoder
	acct   InterfaceAccount

	walked   uint64 // packets taken from the ring
	accepted uint64 // packets that the kernel says it put there
	idle     uint64 // when a parked ring last gave packets, monotonic nanoseconds
	progress uint64 // walked at that time
}

// poll adds what the kernel counted since the last time.
func (s *source) poll() error {
	st, err := s.ring.stats()
	if err != nil {
		return err
	}
	s.accepted += st.accepted
	s.acct.Frozen += st.frozen
	s.acct.DroppedRing += st.dropped
	s.acct.Received += st.dropped
	return nil
}

// park ends the arrival of packets and takes the final counts.
func (s *source) park() error {
	s.parked = true
	if err := s.ring.park(); err != nil {
		return err
	}
	return s.poll()
}

// drained tells whether a parked ring holds nothing more.
func (s *source) drained() bool { return s.parked && s.walked >= s.accepted }

// wrote adds a batch that is in the file.
func (s *source) wrote(b *batch) {
	a := &s.acct
	a.Received += b.packets
	a.Written += b.packets
	a.Bytes += b.bytes
	a.Truncated += b.truncated
	if b.packets > 0 {
		a.span(stamp(b.first), stamp(b.last))
	}
}

// lose adds packets that were in the ring and did not reach the file.
func (s *source) lose(n uint64, where *uint64) {
	s.acct.Received += n
	*where += n
}

// statistics is the source's block at the end of the file. Wireshark shows isb_ifrecv and isb_ifdrop, so that these
// carry, as with dumpcap, what passed the filter and what was lost of it before the file.
func (s *source) statistics(start, now uint64) pcapng.Statistics {
	received, written := s.acct.Received, s.acct.Written
	osDrop := s.acct.DroppedKernel + s.acct.DroppedRing
	dropped := osDrop + s.acct.DroppedWriter
	return pcapng.Statistics{
		Interface: s.enc.iface, Time: now, Start: start, End: now,
		Received: &received, IfDrop: &dropped, FilterAccept: &received, OSDrop: &osDrop, Delivered: &written,
	}
}

// statisticsLen is the length of every block that statistics makes: times and counters have fixed sizes.
var statisticsLen = uint64(len(pcapng.AppendStatistics(nil, new((&source{}).statistics(1, 1)))))

func stamp(ns uint64) time.Time { return time.Unix(int64(ns/1e9), int64(ns%1e9)).UTC() }
