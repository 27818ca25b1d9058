package capture

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// maxTaps bounds the interfaces that are captured at a time: enough for a node with a veth for each of its Pods. The
// memory of rings is the node's, in no container's limit, and a target that may administer its network can make
// interfaces without end.
const maxTaps = 512

// maxNotes bounds the interfaces of which the account tells that they are not captured; the log has them all.
const maxNotes = 64

// attachAll opens every interface that is there at the start.
func (s *session) attachAll(links []link) error {
	for i := range links {
		if err := s.linkChanged(&links[i]); err != nil {
			return err
		}
	}
	s.attached = true
	s.noteMissing()
	s.rec.publish()
	return nil
}

func (s *session) wants(l *link) bool {
	return len(s.cfg.Interfaces) == 0 || slices.Contains(s.cfg.Interfaces, l.name)
}

// linkChanged opens an interface that is new and parks one that is gone.
func (s *session) linkChanged(l *link) error {
	for _, t := range s.tapped {
		if t.acct.Index != l.index || t.acct.Gone {
			continue
		}
		if l.gone {
			s.log.Info("Interface left", "interface", t.acct.Name)
			t.acct.Gone = true
			return t.park()
		}
		return nil // renamed, up or down: what takes its packets stays with it
	}
	if l.gone || !s.wants(l) || s.isSkipped(l) {
		return nil
	}
	return s.attach(l)
}

// attach begins to capture an interface. One that cannot be captured is skipped with a note: the others go on.
func (s *session) attach(l *link) error {
	lt, why := s.fits(l)
	desc := pcapng.AppendInterface(nil, &pcapng.Interface{
		Name: l.name, Description: s.cfg.Description, Filter: s.cfg.FilterText, LinkType: lt, SnapLen: s.rec.snapLen(),
	})
	if why == "" {
		why = s.rec.fits(desc)
	}
	if why != "" {
		s.skip(l, why)
		return nil
	}
	tap, err := s.taker.tap(l, lt)
	if err != nil && s.attached {
		s.skip(l, err.Error()) // no reason to end a capture that is under way
		return nil
	}
	if err != nil {
		return fmt.Errorf("attach to %s: %w", l.name, err)
	}
	t, err := s.rec.add(desc, InterfaceAccount{Name: l.name, Index: l.index, LinkType: lt})
	if err != nil {
		return errors.Join(err, tap.drop())
	}
	s.unskip(l.name)
	return s.start(&tapped{track: t, tap: tap})
}

// fits finds the link type of an interface, or why it cannot be captured.
func (s *session) fits(l *link) (lt pcapng.LinkType, why string) {
	lt, ok := l.linkType()
	switch {
	case !ok:
		return lt, fmt.Sprintf("hardware type %d has no link type in pcapng", l.arp)
	case s.cfg.Filters != nil && s.cfg.Filters[lt] == nil:
		return lt, fmt.Sprintf("the filter does not fit link type %d", lt)
	case s.taker.taps() >= s.maxTaps:
		return lt, fmt.Sprintf("no more than %d interfaces are captured at a time: name the ones that are wanted", s.maxTaps)
	}
	return lt, ""
}

// start lets packets in. An interface that has gone meanwhile is none the less in the file, without packets.
func (s *session) start(t *tapped) error {
	s.tapped = append(s.tapped, t)
	err := t.tap.start(t.track)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		t.acct.Gone = true
		return t.park()
	}
	if err != nil && s.attached { // as in attach; that it is there without packets, the file says already
		s.log.Warn("Leaving out interface", "interface", t.acct.Name, "error", err)
		t.acct.Note = err.Error()
		return t.park()
	}
	if err != nil {
		return fmt.Errorf("attach to %s: %w", t.acct.Name, err)
	}
	return nil
}

func (s *session) isSkipped(l *link) bool {
	return slices.ContainsFunc(s.rec.skipped, func(a InterfaceAccount) bool { return a.Index == l.index && a.Name == l.name })
}

func (s *session) skip(l *link, why string) {
	s.log.Warn("Skipping interface", "interface", l.name, "reason", why)
	// A target that may administer its network can make interfaces without end, and each note is memory.
	if len(s.rec.skipped) < maxNotes {
		s.rec.skipped = append(s.rec.skipped, InterfaceAccount{Name: l.name, Index: l.index, Note: why})
	}
}

// unskip takes back the note on an interface that was not there.
func (s *session) unskip(name string) {
	s.rec.skipped = slices.DeleteFunc(s.rec.skipped, func(a InterfaceAccount) bool { return a.Name == name })
}

// noteMissing says which of the named interfaces are not there (yet).
func (s *session) noteMissing() {
	for _, name := range s.cfg.Interfaces {
		there := slices.ContainsFunc(s.tapped, func(t *tapped) bool { return t.acct.Name == name }) ||
			slices.ContainsFunc(s.rec.skipped, func(a InterfaceAccount) bool { return a.Name == name })
		if !there {
			s.skip(&link{name: name}, "no such interface; it is captured as soon as it appears")
		}
	}
}
