package afpacket

import (
	"errors"
	"slices"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
)

// source is the packet socket of one interface.
type source struct {
	b       *Backend
	iface   *record.Interface
	ring    *socketRing
	stopped bool // the socket is detached from its interface; the ring may still hold packets
	enc     encoder

	read     uint64 // packets read from the ring
	accepted uint64 // packets that the kernel says it put there
	idle     uint64 // when a stopped ring last gave packets, by CLOCK_MONOTONIC in nanoseconds
	progress uint64 // read at that time
}

// Start implements backend.Source.
func (s *source) Start(i *record.Interface) error {
	s.iface, s.enc.iface = i, i.ID
	if err := errors.Join(s.b.cfg.Watch(s.ring.fd), s.ring.start(i.Account.Index)); err != nil {
		return err
	}
	s.b.cfg.Log.Info("Attached to interface", "interface", i.Account.Name, "linkType", i.Account.LinkType, "ringBytes", len(s.ring.mem))
	return nil
}

// Discard implements backend.Source.
func (s *source) Discard() error {
	s.b.sources = slices.DeleteFunc(s.b.sources, func(o *source) bool { return o == s })
	return s.ring.close()
}

// write gives the packets of one block to the recorder.
func (s *source) write(block []byte) {
	n, r := uint64(blockHeader(block).Num_pkts), s.b.cfg.Recorder
	s.read += n
	if r.Ended() {
		r.Reject(s.iface, n)
	} else {
		s.iface.Lose(s.enc.encode(block, &s.b.batch), &s.iface.Account.DroppedKernel)
		r.Write(&s.b.batch)
	}
	r.PublishInterface(s.iface)
}

// readStats adds the kernel's counts since the last call.
func (s *source) readStats() error {
	st, err := s.ring.stats()
	if err != nil {
		return err
	}
	s.accepted += st.accepted
	s.iface.Account.Frozen += st.frozen
	s.iface.Lose(st.dropped, &s.iface.Account.DroppedRing)
	return nil
}

// Restore implements backend.Source.
func (s *source) Restore() (detached bool, err error) {
	bound, err := links.Bound(s.ring.fd)
	if bound || err != nil {
		return false, err
	}
	return true, s.ring.start(s.iface.Account.Index)
}

// Hidden implements backend.Source. The engine follows filters for clsact alone.
func (*source) Hidden(links.Filter) bool { return false }

// Stop implements backend.Source.
func (s *source) Stop() error {
	s.stopped = true
	if err := s.ring.stop(); err != nil {
		return err
	}
	return s.readStats()
}

// drained reports whether a stopped ring holds no more packets.
func (s *source) drained() bool { return s.stopped && s.read >= s.accepted }

// stuck reports whether a stopped ring has given nothing for drainTimeout.
func (s *source) stuck(now uint64) bool {
	if s.idle == 0 || s.progress != s.read {
		s.idle, s.progress = now, s.read
	}
	return now-s.idle > drainTimeout
}
