package tc

import (
	"errors"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// source is one interface with its programs.
type source struct {
	b        *Backend
	iface    *record.Interface // nil before Start
	index    int
	loopback bool
	lt       pcapng.LinkType
	slot     uint32
	before   uint64 // lost packets of the slot's earlier sources
	lost     uint64 // lost packets that the account already has

	attached   attachment // nil if nothing is attached
	attachedAt uint64     // by CLOCK_MONOTONIC, as is stoppedAt
	checks     int        // how often check was called since attachedAt
	stopped    bool
	stoppedAt  uint64
}

// Start implements backend.Source.
func (s *source) Start(i *record.Interface) error {
	s.iface = i
	if err := s.b.programs.addInterface(s.index, i.ID, s.slot); err != nil {
		return err
	}
	if err := s.attach(); err != nil {
		return err
	}
	s.b.cfg.Log.Info("Attached to interface", "interface", i.Account.Name, "linkType", s.lt, "at", s.b.attacher.name())
	return nil
}

func (s *source) attach() (err error) {
	pair := s.b.programs.of[s.lt].Programs
	in, out := pair[packetsProgSondeIn], pair[packetsProgSondeOut]
	if s.loopback {
		out = (*ebpf.Program)(nil) // each packet passes loopback twice, out and in; once is enough (as libpcap has it)
	}
	s.attached, err = s.b.attacher.attach(s.b.cfg.NetNS, s.index, in, out)
	s.attachedAt, s.checks = backend.Now(unix.CLOCK_MONOTONIC), 0
	if err == nil && s.index == loopbackIndex {
		err = s.b.endTry()
	}
	return err
}

// Restore implements backend.Source. It attaches the programs again only if they no longer receive all packets. No packet arrives between
// detaching and attaching, and other captures would take the two changes for a foreign program that has come and gone.
func (s *source) Restore() (detached bool, err error) {
	if s.attached != nil {
		attached, whole, err := s.check()
		if attached || err != nil {
			return err == nil && !whole, err
		}
	}
	return true, errors.Join(s.detach(), s.attach())
}

// check is the attachment's check, which it counts.
func (s *source) check() (attached, whole bool, err error) {
	s.checks++
	return s.attached.check()
}

// keepFor returns how much longer the programs must stay attached, given for how long they have been. Zero means that they may be
// detached; otherwise call it again after that time. While fewer than minChecks were made, each call makes one.
func (s *source) keepFor(attached time.Duration) time.Duration {
	switch {
	case attached > maxAttached:
		return 0
	case s.checks < minChecks:
		_, _, _ = s.check() // others may have detached it, which changes nothing here
		return backend.CheckInterval
	}
	return max(0, minAttached-attached)
}

// Hidden implements backend.Source.
func (s *source) Hidden(f links.Filter) bool { return s.attached != nil && s.attached.hidden(f) }

// Stop implements backend.Source. After Shut no packets arrive, and Close detaches the programs, which takes the kernel some
// milliseconds for each interface.
func (s *source) Stop() error {
	if s.b.shut {
		s.stopped = true
		return nil
	}
	err := s.detach()
	ring.AwaitPrograms()
	s.stopped, s.stoppedAt = true, backend.Now(unix.CLOCK_MONOTONIC)
	if rerr := s.b.programs.removeInterface(s.index); err == nil {
		err = rerr
	}
	return err
}

// done reports whether the interface is stopped and all its packets were read.
func (s *source) done() bool {
	return s.stopped && (s.b.shut || s.b.readTo > s.stoppedAt)
}

func (s *source) detach() error {
	if s.attached == nil {
		return nil
	}
	err := s.attached.Close()
	s.attached = nil
	return err
}

// Discard implements backend.Source.
func (s *source) Discard() error {
	s.b.slots[s.slot] = false
	s.b.sources = slices.DeleteFunc(s.b.sources, func(o *source) bool { return o == s })
	return nil
}

// countLost adds the programs' count of lost packets to the account.
func (s *source) countLost() {
	if s.iface == nil {
		return
	}
	n := s.b.programs.lost(s.slot) - s.before
	if n == s.lost {
		return
	}
	s.iface.Lose(n-s.lost, &s.iface.Account.DroppedRing)
	s.lost = n
	s.b.cfg.Recorder.PublishInterface(s.iface)
}
