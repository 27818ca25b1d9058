package capture

// source is one interface of the capture: its ring while there is one, and where its packets go.
type source struct {
	*track
	ring   *ring // nil once closed
	parked bool  // the socket is off its interface, only the ring's rest is to be taken
	enc    encoder

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
