package capture

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// maxSources bounds the interfaces that are captured at a time: enough for a node with a veth for each of its Pods. Rings use
// the node's memory, which no container limit counts, and a target with NET_ADMIN can create any number of interfaces.
const maxSources = 512

// maxInterfaces bounds the interfaces that are captured in all. Each stays in the account and in the description of every file,
// with the filter's text, after it is gone: a target with NET_ADMIN can create and delete them for ever.
const maxInterfaces = 4096

// maxNotes bounds the skipped interfaces in the account. The log has all of them.
const maxNotes = 64

// otherInterfaces is the name in the note that counts the skipped interfaces that have no note of their own. No interface has
// a blank in its name.
const otherInterfaces = "other interfaces"

// attachAll attaches to every interface that exists at the start.
func (s *session) attachAll(existing []links.Link) error {
	for i := range existing {
		if err := s.linkChanged(&existing[i]); err != nil {
			return err
		}
	}
	s.attached = true
	if s.links.Listing() { // the target changes interfaces too fast
		s.noteUnnoticed()
	}
	s.noteMissing(existing)
	s.noteNoNetwork(existing)
	s.rec.Publish()
	return nil
}

// linkChanged attaches to a new interface and stops capturing a deleted one.
func (s *session) linkChanged(l *links.Link) error {
	for _, src := range s.sources {
		if src.iface.Account.Index != l.Index {
			continue
		}
		if src.late && s.awaitsEnd(src, l) {
			return nil
		}
		if src.iface.Account.Gone {
			continue
		}
		if l.Gone {
			return s.leave(src, l)
		}
		if l.Filter.Parent != 0 && src.Hidden(l.Filter) { // it may be gone again at the next check
			s.missed(src, "a process added a filter before the capture's, which may have hidden packets")
		}
		src.suspect = src.suspect || l.Filters
		if !l.Filters {
			s.noteDiverted(src, l)
		}
		return nil // renamed, up or down: the source stays attached
	}
	if l.Gone {
		s.forgetSkipped(l.Index)
		return nil
	}
	if l.Filters || !s.shared.Wants(l) || s.isSkipped(l) {
		return nil
	}
	return s.attach(l)
}

// forgetSkipped makes an interface that is gone no longer count as skipped. A process may make another one with its index and name, of a type
// that is captured. Its note stays.
func (s *session) forgetSkipped(index int) {
	for i := range s.rec.Skipped {
		if a := &s.rec.Skipped[i]; a.Index == index {
			a.Index = noIndex
		}
	}
}

// awaitsEnd notes what a message of the end of a late source's interface says. It reports whether the source is stopped already: older
// messages about its interface would attach the capture again.
func (s *session) awaitsEnd(src *source, l *links.Link) bool {
	if l.Gone {
		s.noteEarlier(src, l)
	}
	return src.stopped
}

// leave stops capturing an interface that is gone. The packets of one that was deleted have ended with it, but one that was
// moved goes on elsewhere.
func (s *session) leave(src *source, l *links.Link) error {
	account := &src.iface.Account
	s.cfg.Log.Info("Interface left", "interface", account.Name, "moved", l.Moved)
	account.Gone = true
	if l.Moved && !s.records(l.Peer) {
		s.missUnlessNode(account, "moved into another network namespace, where its packets are not captured")
	}
	return src.stop()
}

// records reports whether the interface with this index is captured: the other end of a veth has the same packets.
func (s *session) records(index int) bool {
	return slices.ContainsFunc(s.sources, func(src *source) bool { return src.iface.Account.Index == index && !src.stopped })
}

// missUnlessNode notes that packets of an interface may be missing. On a node's own network that is no gap: container runtimes move
// interfaces into Pods, whose packets are not the node's, and network plugins attach XDP programs.
func (s *session) missUnlessNode(account *record.InterfaceAccount, why string) {
	switch {
	case !s.cfg.NodeNetwork:
		account.Miss(at(why))
	case !account.Gap: // its note says why
		account.Note = at(why)
	}
}

// noteDiverted notes each reason once why incoming packets of a source's interface may be missing. An XDP program gets them first, and may drop,
// return or redirect them. In mode L3S they bypass the interface.
func (s *session) noteDiverted(src *source, l *links.Link) {
	account := &src.iface.Account
	if l.XDP && !src.xdp {
		src.xdp = true
		s.cfg.Log.Warn("An interface has an XDP program", "interface", account.Name)
		s.missUnlessNode(account, "an XDP program was attached to it, which may have kept incoming packets from the capture")
	}
	if l.L3S && !src.l3s {
		src.l3s = true
		s.cfg.Log.Warn("An interface is an ipvlan in mode L3S", "interface", account.Name)
		s.missUnlessNode(account, "it is an ipvlan in mode L3S: packets from outside the node reach the Pod's processes without passing it, and are not captured")
	}
}

// at adds the time to a note.
func at(why string) string { return why + " (" + time.Now().UTC().Format(time.RFC3339) + ")" }

// unnoticed is the name in the note on interfaces that may have come and gone. No interface has a blank in its name.
const unnoticed = "unnoticed interfaces"

// noteUnnoticed notes once that interfaces may have come and gone. That is no gap: most floods of changes are of those that stay. The
// note is the first one, because a target can make as many skipped interfaces as it likes: the account cuts their notes.
func (s *session) noteUnnoticed() {
	known := func(a record.InterfaceAccount) bool { return a.Name == unnoticed }
	if s.cfg.NodeNetwork || slices.ContainsFunc(s.rec.Skipped, known) {
		return
	}
	why := at("too many changes at a time to know whether other interfaces came and went, whose packets are missing")
	s.cfg.Log.Warn("Interfaces may have come and gone", "reason", why)
	s.unskip(otherInterfaces)
	if len(s.rec.Skipped) >= maxNotes {
		for i, a := range slices.Backward(s.rec.Skipped) {
			if !a.Gap { // one of those is always in the account
				s.rec.Skipped = slices.Delete(s.rec.Skipped, i, i+1)
				s.unlisted++
				break
			}
		}
	}
	s.rec.Skipped = slices.Insert(s.rec.Skipped, 0, record.InterfaceAccount{Name: unnoticed, Index: -1, Note: why})
	s.noteOthers()
}

// listed compares the sources with a new listing, after the kernel could not report each change: an interface may have left, or
// left and come back.
func (s *session) listed() error {
	s.noteUnnoticed()
	for _, a := range s.rec.Skipped {
		if a.Index > 0 && !s.links.Listed(a.Index) {
			s.forgetSkipped(a.Index)
		}
	}
	for _, src := range s.sources {
		account := &src.iface.Account
		if src.late {
			src.late = false
			s.missUnlessNode(account, "not known whether packets passed it before the capture was attached to it")
		}
		if src.stopped {
			continue
		}
		if s.links.Listed(account.Index) {
			src.suspect = true
			if s.filters {
				s.missed(src, "too many changes to know whether a filter before the capture's has hidden packets")
			}
			continue
		}
		s.missUnlessNode(account, "left the network namespace unnoticed among many changes, perhaps into another one")
		if err := s.leave(src, &links.Link{}); err != nil {
			return err
		}
	}
	return nil
}

// maxChecks bounds the sources that are checked at a time: each check takes locks that the node's network needs, too.
const maxChecks = 16

// checkNext has up to n sources checked, others each time. The kernel announces no changes of programs at tcx, and no XDP program
// that is attached by a link.
func (s *session) checkNext(n int) {
	var next []*source
	for range min(n, len(s.sources)) {
		s.checked = (s.checked + 1) % len(s.sources)
		next = append(next, s.sources[s.checked])
	}
	for _, src := range next {
		src.suspect = src.suspect || s.programs
	}
	if !s.cfg.NodeNetwork {
		next = s.sources // a process of the Pod could delay the check of one interface by making others
	}
	s.checkDiverted(next)
}

// checkDiverted asks the kernel what takes incoming packets from sources' interfaces.
func (s *session) checkDiverted(sources []*source) {
	byIndex, indexes := map[int]*source{}, make([]int, 0, len(sources))
	for _, src := range sources {
		if account := &src.iface.Account; !src.stopped && !account.Gone {
			byIndex[account.Index] = src
			indexes = append(indexes, account.Index)
		}
	}
	var found []links.Link
	err := links.InNetNS(s.netns, func() (err error) {
		found, err = links.Get(indexes)
		return err
	})
	if err != nil {
		for _, src := range byIndex {
			s.missUnlessNode(&src.iface.Account, "not known whether all incoming packets passed the capture: "+err.Error())
		}
		return
	}
	for i := range found {
		if src := byIndex[found[i].Index]; src != nil {
			s.noteDiverted(src, &found[i])
		}
	}
}

// restore attaches sources again that others have detached.
func (s *session) restore() {
	for _, src := range s.sources {
		if !src.suspect || src.stopped {
			continue
		}
		src.suspect = false
		detached, err := src.Restore()
		if isGone(err) {
			continue // a message will say whether it was deleted or moved
		}
		why := "a process detached the capture from it, or attached a program before the capture's, and packets may have been missed"
		if err != nil {
			why = "the capture is not attached to it any more: " + err.Error()
		}
		if detached || err != nil {
			s.missed(src, why)
		}
	}
}

// missed notes that packets of a source may be missing that are not counted.
func (s *session) missed(src *source, why string) {
	s.cfg.Log.Warn("Packets of an interface were missed", "interface", src.iface.Account.Name, "reason", why)
	src.iface.Account.Miss(at(why))
}

// attach begins to capture an interface. One that cannot be captured is skipped with a note: the others continue. The result is incomplete
// if the spec names it.
func (s *session) attach(l *links.Link) error {
	lt, why := s.check(l)
	if why != "" {
		named := slices.Contains(s.cfg.Interfaces, l.Name)
		if named {
			why = at(why) // if the interface's type changes, it is captured from then on
		}
		s.skipAs(record.InterfaceAccount{Name: l.Name, Index: l.Index, Gap: named, Odd: true, Note: why})
		return nil
	}
	desc := pcapng.AppendInterface(nil, &pcapng.Interface{
		Comments: s.withoutProcesses(), Name: l.Name, Description: s.cfg.Description, Filter: s.cfg.FilterText, LinkType: lt, SnapLen: s.rec.SnapLen(),
	})
	switch why = s.rec.CanAdd(desc); {
	case why != "":
	case s.rec.NumInterfaces() >= s.maxInterfaces:
		why = fmt.Sprintf("no more than %d interfaces are captured in all: name the ones to capture", s.maxInterfaces)
	case s.backend.Sources() >= s.maxSources:
		why = fmt.Sprintf("no more than %d interfaces are captured at a time: name the ones to capture", s.maxSources)
	}
	if why != "" {
		s.skip(l, why, true)
		return nil
	}
	src, err := s.backend.Open(l, s.attached)
	if err != nil && s.attached {
		s.skip(l, err.Error(), true) // the capture is running: do not end it
		return nil
	}
	if isGone(err) { // before the capture began: no message will say whether it was moved
		// With this index, it is captured if it comes back.
		s.skip(&links.Link{Name: l.Name, Index: noIndex}, leftBefore, !s.cfg.NodeNetwork)
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
	added := &source{Source: src, iface: iface}
	if err := s.start(added); err != nil {
		return err
	}
	s.noteDiverted(added, l)
	return nil
}

// withoutProcesses returns the comment of interfaces whose packets were to name processes, and cannot.
func (s *session) withoutProcesses() []string {
	if p := s.rec.Account().Processes; p != nil && p.Message != "" && p.Reasons == nil {
		return []string{"process unknown, of all packets: " + p.Message}
	}
	return nil
}

// check returns the link type of an interface, or why no interface of its type is captured.
func (s *session) check(l *links.Link) (lt pcapng.LinkType, why string) {
	lt, ok := l.LinkType()
	switch {
	case !ok:
		return lt, fmt.Sprintf("hardware type %d has no link type in pcapng", l.HardwareType)
	case s.cfg.Filters != nil && s.cfg.Filters[lt] == nil:
		return lt, fmt.Sprintf("the filter does not fit link type %d", lt)
	}
	return lt, ""
}

// noIndex is no interface's.
const noIndex = -1

// leftBefore is the note on an interface that was listed, and gone when the capture was to be attached to it.
const leftBefore = "it left before the capture was attached to it, perhaps into another network namespace, where its packets are not captured"

// start lets packets in. An interface that has just gone stays in the file, without packets.
func (s *session) start(src *source) error {
	s.sources = append(s.sources, src)
	account := &src.iface.Account
	err := src.Start(src.iface)
	if isGone(err) {
		if src.late, account.Gone = s.attached, true; !s.attached {
			s.missUnlessNode(account, leftBefore)
		}
		return src.stop()
	}
	if err != nil && s.attached { // as in attach; the file has its description already
		s.cfg.Log.Warn("Leaving out interface", "interface", account.Name, "error", err)
		account.Miss(err.Error())
		return src.stop()
	}
	if err != nil {
		return fmt.Errorf("attach to %s: %w", account.Name, err)
	}
	if s.attached {
		s.countEarlier(src)
	}
	return nil
}

// countEarlier asks the kernel whether packets have passed an interface that appeared during the capture before the capture was attached
// to it. If the interface is gone, the message of its end will say that.
func (s *session) countEarlier(src *source) {
	account := &src.iface.Account
	var found []links.Link
	err := links.InNetNS(s.netns, func() (err error) {
		found, err = links.GetWithPackets(account.Index)
		return err
	})
	switch {
	case err != nil:
		s.missUnlessNode(account, "not known whether packets passed it before the capture was attached to it: "+err.Error())
	case len(found) == 0:
		src.late = true
	default:
		s.noteEarlier(src, &found[0])
	}
}

// noteEarlier notes that packets may have passed a source's interface before the capture was attached to it, if its counters say that
// some have passed.
func (s *session) noteEarlier(src *source, l *links.Link) {
	src.late = false
	if l.Packets == 0 {
		return
	}
	account := &src.iface.Account
	s.cfg.Log.Warn("Packets of a new interface were missed", "interface", account.Name, "packets", l.Packets)
	s.missUnlessNode(account, fmt.Sprintf("up to %d packets passed it before the capture was attached to it", l.Packets))
}

// isGone reports whether an interface does not exist any more.
func isGone(err error) bool { return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) }

func (s *session) isSkipped(l *links.Link) bool {
	_, why := s.check(l) // a tap may have another hardware type by now
	return slices.ContainsFunc(s.rec.Skipped, func(a record.InterfaceAccount) bool {
		return a.Index == l.Index && a.Name == l.Name && (a.Gap && !a.Odd || why != "")
	})
}

// skip notes why an interface is not captured. gap says that packets were missed that belong into the file.
func (s *session) skip(l *links.Link, why string, gap bool) {
	s.skipAs(record.InterfaceAccount{Name: l.Name, Index: l.Index, Gap: gap, Note: why})
}

func (s *session) skipAs(account record.InterfaceAccount) {
	s.cfg.Log.Warn("Skipping interface", "interface", account.Name, "reason", account.Note)
	s.unskip(otherInterfaces)
	if account.Gap && !slices.ContainsFunc(s.rec.Skipped, func(a record.InterfaceAccount) bool { return a.Gap }) {
		kept := s.rec.Skipped[:min(len(s.rec.Skipped), maxNotes-1)] // one such note is always in the account
		s.unlisted += len(s.rec.Skipped) - len(kept)
		s.rec.Skipped = kept
	}
	if len(s.rec.Skipped) < maxNotes {
		s.rec.Skipped = append(s.rec.Skipped, account)
	} else {
		s.unlisted++
	}
	s.noteOthers()
}

// noteOthers counts the skipped interfaces without a note. The caller has removed an earlier count.
func (s *session) noteOthers() {
	if s.unlisted > 0 {
		s.rec.Skipped = append(s.rec.Skipped, record.InterfaceAccount{Name: otherInterfaces, Index: -1, Note: fmt.Sprintf("skipped %d times", s.unlisted)})
	}
}

// unskip removes the note on an interface that was missing. That packets were missed stays.
func (s *session) unskip(name string) {
	s.rec.Skipped = slices.DeleteFunc(s.rec.Skipped, func(a record.InterfaceAccount) bool { return a.Name == name && !a.Gap })
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
			s.skip(&links.Link{Name: name}, fmt.Sprintf("no such interface, the Pod has %s; it is captured as soon as it appears", strings.Join(names, ", ")), false)
		}
	}
}

// noInterface is the name in the note of a Pod without a network. No interface has a blank in its name.
const noInterface = "no interface"

// noteNoNetwork notes that a Pod has no network that can be captured: a process may have moved its interfaces away before.
func (s *session) noteNoNetwork(existing []links.Link) {
	network := func(l links.Link) bool { return l.Up() && !l.Loopback() }
	if s.cfg.NodeNetwork || len(s.cfg.Interfaces) > 0 || slices.ContainsFunc(existing, network) {
		return
	}
	const why = "only loopback was up when the capture began; the Pod's network may be in another network namespace, where its packets are not captured"
	s.skip(&links.Link{Name: noInterface, Index: -1}, why, true)
}
