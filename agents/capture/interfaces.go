package capture

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// maxSources bounds the interfaces that are captured at a time: enough for a node with a veth for each of its Pods. Rings use
// the node's memory, which no container limit counts, and a target with NET_ADMIN can create any number of interfaces.
const maxSources = 512

// maxNotes bounds the skipped interfaces in the account. The log has all of them.
const maxNotes = 64

// attachAll attaches to every interface that exists at the start.
func (s *session) attachAll(existing []links.Link) error {
	for i := range existing {
		if err := s.linkChanged(&existing[i]); err != nil {
			return err
		}
	}
	s.attached = true
	s.noteMissing(existing)
	s.rec.Publish()
	return nil
}

// linkChanged attaches to a new interface and stops capturing a deleted one.
func (s *session) linkChanged(l *links.Link) error {
	for _, src := range s.sources {
		if src.iface.Account.Index != l.Index || src.iface.Account.Gone {
			continue
		}
		if l.Gone {
			s.cfg.Log.Info("Interface left", "interface", src.iface.Account.Name)
			src.iface.Account.Gone = true
			return src.stop()
		}
		return nil // renamed, up or down: the source stays attached
	}
	if l.Gone || !s.shared.Wants(l) || s.isSkipped(l) {
		return nil
	}
	return s.attach(l)
}

// attach begins to capture an interface. One that cannot be captured is skipped with a note: the others continue.
func (s *session) attach(l *links.Link) error {
	lt, why := s.check(l)
	desc := pcapng.AppendInterface(nil, &pcapng.Interface{
		Name: l.Name, Description: s.cfg.Description, Filter: s.cfg.FilterText, LinkType: lt, SnapLen: s.rec.SnapLen(),
	})
	if why == "" {
		why = s.rec.CanAdd(desc)
	}
	if why != "" {
		s.skip(l, why)
		return nil
	}
	src, err := s.backend.Open(l, s.attached)
	if err != nil && s.attached {
		s.skip(l, err.Error()) // the capture is running: do not end it
		return nil
	}
	if err != nil {
		return fmt.Errorf("attach to %s: %w", l.Name, err)
	}
	iface, err := s.rec.Add(desc, record.InterfaceAccount{Name: l.Name, Index: l.Index, LinkType: lt})
	if err != nil {
		return errors.Join(err, src.Discard())
	}
	s.unskip(l.Name)
	return s.start(&source{Source: src, iface: iface})
}

// check returns the link type of an interface, or why it cannot be captured.
func (s *session) check(l *links.Link) (lt pcapng.LinkType, why string) {
	lt, ok := l.LinkType()
	switch {
	case !ok:
		return lt, fmt.Sprintf("hardware type %d has no link type in pcapng", l.HardwareType)
	case s.cfg.Filters != nil && s.cfg.Filters[lt] == nil:
		return lt, fmt.Sprintf("the filter does not fit link type %d", lt)
	case s.backend.Sources() >= s.maxSources:
		return lt, fmt.Sprintf("no more than %d interfaces are captured at a time: name the ones to capture", s.maxSources)
	}
	return lt, ""
}

// start lets packets in. An interface that has just gone stays in the file, without packets.
func (s *session) start(src *source) error {
	s.sources = append(s.sources, src)
	account := &src.iface.Account
	err := src.Start(src.iface)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		account.Gone = true
		return src.stop()
	}
	if err != nil && s.attached { // as in attach; the file has its description already
		s.cfg.Log.Warn("Leaving out interface", "interface", account.Name, "error", err)
		account.Note = err.Error()
		return src.stop()
	}
	if err != nil {
		return fmt.Errorf("attach to %s: %w", account.Name, err)
	}
	return nil
}

func (s *session) isSkipped(l *links.Link) bool {
	return slices.ContainsFunc(s.rec.Skipped, func(a record.InterfaceAccount) bool { return a.Index == l.Index && a.Name == l.Name })
}

func (s *session) skip(l *links.Link, why string) {
	s.cfg.Log.Warn("Skipping interface", "interface", l.Name, "reason", why)
	if len(s.rec.Skipped) < maxNotes {
		s.rec.Skipped = append(s.rec.Skipped, record.InterfaceAccount{Name: l.Name, Index: l.Index, Note: why})
	}
}

// unskip removes the note on an interface that was missing.
func (s *session) unskip(name string) {
	s.rec.Skipped = slices.DeleteFunc(s.rec.Skipped, func(a record.InterfaceAccount) bool { return a.Name == name })
}

// maxNamed bounds the interfaces that the note on a missing one names.
const maxNamed = 6

// noteMissing adds a note for each named interface that does not exist (yet).
func (s *session) noteMissing(existing []links.Link) {
	var names []string
	for i := range existing[:min(len(existing), maxNamed)] {
		names = append(names, existing[i].Name)
	}
	for _, name := range s.cfg.Interfaces {
		exists := slices.ContainsFunc(s.sources, func(src *source) bool { return src.iface.Account.Name == name }) ||
			slices.ContainsFunc(s.rec.Skipped, func(a record.InterfaceAccount) bool { return a.Name == name })
		if !exists {
			s.skip(&links.Link{Name: name}, fmt.Sprintf("no such interface, the Pod has %s; it is captured as soon as it appears", strings.Join(names, ", ")))
		}
	}
}
