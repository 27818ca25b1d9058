package capture

import (
	"errors"
	"slices"
)

// source is the socket of one interface: its ring, and where its packets go.
type source struct {
	*sockets
	*track
	ring   *socketRing
	parked bool // the socket is off its interface, only the ring's rest is to be taken
	enc    encoder

	walked   uint64 // packets taken from the ring
	accepted uint64 // packets that the kernel says it put there
	idle     uint64 // when a parked ring last gave packets, monotonic nanoseconds
	progress uint64 // walked at that time
}

// start implements tap.
func (s *source) start(t *track) error {
	s.track, s.enc.iface = t, t.id
	if err := errors.Join(s.waits.add(s.ring.fd), s.ring.start(t.acct.Index)); err != nil {
		return err
	}
	s.log.Info("Attached to interface", "interface", t.acct.Name, "linkType", t.acct.LinkType, "ringBytes", len(s.ring.mem))
	return nil
}

// drop implements tap.
func (s *source) drop() error {
	s.sources = slices.DeleteFunc(s.sources, func(o *source) bool { return o == s })
	return s.ring.close()
}

// take hands the packets of one block to the recorder.
func (s *source) take(block []byte) {
	n := uint64(blockHeader(block).Num_pkts)
	s.walked += n
	if s.rec.over() {
		s.rec.refuse(s.track, n)
	} else {
		s.lose(s.enc.encode(block, &s.batch), &s.acct.DroppedKernel)
		s.rec.write(&s.batch)
	}
	s.rec.publishTrack(s.track)
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

// park implements tap.
func (s *source) park() error {
	s.parked = true
	if err := s.ring.park(); err != nil {
		return err
	}
	return s.poll()
}

// drained tells whether a parked ring holds nothing more.
func (s *source) drained() bool { return s.parked && s.walked >= s.accepted }

// stuck tells whether a parked ring has given nothing for drainTimeout.
func (s *source) stuck(t uint64) bool {
	if s.idle == 0 || s.progress != s.walked {
		s.idle, s.progress = t, s.walked
	}
	return t-s.idle > drainTimeout
}
