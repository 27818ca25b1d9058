package capture

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/pcapng"
)

// maxRings bounds the interfaces that are captured at a time: enough for a node with a veth for each of its Pods. The
// memory of rings is the node's, in no container's limit, and a target that may administer its network can make
// interfaces without end.
const maxRings = 512

// maxNotes bounds the interfaces of which the account tells that they are not captured; the log has them all.
const maxNotes = 64

// attachAll opens every interface that is there now.
func (c *afCapture) attachAll() error {
	links, err := c.links.list()
	if err != nil {
		return err
	}
	later := len(c.cfg.Interfaces)
	for i := range links {
		if !links[i].gone && c.wants(&links[i]) {
			c.parts += partsOf(links[i].loopback())
			later--
		}
	}
	c.parts = max(c.parts+partsOf(false)*max(later, 0), 1)
	for i := range links {
		if err := c.linkChanged(&links[i]); err != nil {
			return err
		}
	}
	c.attached = true
	c.noteMissing()
	c.rec.publish()
	return nil
}

func (c *afCapture) wants(l *link) bool {
	return len(c.cfg.Interfaces) == 0 || slices.Contains(c.cfg.Interfaces, l.name)
}

// linkChanged opens an interface that is new and parks one that is gone.
func (c *afCapture) linkChanged(l *link) error {
	for _, s := range c.sources {
		if s.acct.Index != l.index || s.acct.Gone {
			continue
		}
		if l.gone {
			c.log.Info("Interface left", "interface", s.acct.Name)
			s.acct.Gone = true
			return s.park()
		}
		return nil // renamed, up or down: the socket stays with it
	}
	if l.gone || !c.wants(l) || c.isSkipped(l) {
		return nil
	}
	return c.attach(l)
}

// attach begins to capture an interface. One that cannot be captured is skipped with a note: the others go on.
func (c *afCapture) attach(l *link) error {
	lt, ok := l.linkType()
	if !ok {
		c.skip(l, fmt.Sprintf("hardware type %d has no link type in pcapng", l.arp))
		return nil
	}
	user := c.cfg.Filters[lt]
	if c.cfg.Filters != nil && user == nil {
		c.skip(l, fmt.Sprintf("the filter does not fit link type %d", lt))
		return nil
	}
	prog, err := program(user, lt, c.rec.snapLen())
	if err != nil {
		return err
	}
	desc := pcapng.AppendInterface(nil, &pcapng.Interface{
		Name: l.name, Description: c.cfg.Description, Filter: c.cfg.FilterText,
		LinkType: lt, SnapLen: c.rec.snapLen(),
	})
	if why, ok := c.rec.fits(desc); !ok {
		c.skip(l, why)
		return nil
	}
	if rings, _ := c.mapped(); rings >= c.maxRings {
		c.skip(l, fmt.Sprintf("no more than %d interfaces are captured at a time: name the ones that are wanted", c.maxRings))
		return nil
	}
	r, err := c.openRing(l, prog)
	if err != nil && c.attached {
		c.skip(l, err.Error()) // no reason to end a capture that is under way
		return nil
	}
	if err != nil {
		return fmt.Errorf("attach to %s: %w", l.name, err)
	}
	t, err := c.rec.add(desc, InterfaceAccount{Name: l.name, Index: l.index, LinkType: lt})
	if err != nil {
		return errors.Join(err, r.close())
	}
	s := &source{track: t, ring: r, enc: encoder{iface: t.id, snapLen: c.rec.snapLen(), tags: lt == pcapng.LinkTypeEthernet}}
	c.unskip(l.name)
	c.sources = append(c.sources, s)
	return c.startSource(s)
}

func (c *afCapture) openRing(l *link, prog []unix.SockFilter) (r *ring, err error) {
	block, blocks := c.nextRing(l)
	err = inNetNS(c.netns, func() error {
		r, err = openRing(l, prog, block, blocks)
		return err
	})
	return r, err
}

// nextRing is the size of the next ring. Those of the start share RingBytes; each later one gets at most half of what
// is left of as much again, so that all together stay within twice RingBytes and the least size for each.
func (c *afCapture) nextRing(l *link) (block, blocks int) {
	share := c.cfg.RingBytes * partsOf(l.loopback()) / c.parts
	if c.attached {
		_, bytes := c.mapped()
		share = min(share, max(0, 2*c.cfg.RingBytes-bytes)/2)
	}
	return ringSize(share)
}

// mapped counts the rings that there are, and their memory.
func (c *afCapture) mapped() (rings, bytes int) {
	for _, s := range c.sources {
		if s.ring != nil {
			rings++
			bytes += len(s.ring.mem)
		}
	}
	return rings, bytes
}

// startSource lets packets in. An interface that has gone meanwhile is none the less in the file, without packets.
func (c *afCapture) startSource(s *source) error {
	err := errors.Join(c.await(s.ring.fd), s.ring.start(s.acct.Index))
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		s.acct.Gone = true
		return s.park()
	}
	if err != nil {
		return fmt.Errorf("attach to %s: %w", s.acct.Name, err)
	}
	c.log.Info("Attached to interface", "interface", s.acct.Name, "linkType", s.acct.LinkType, "ringBytes", len(s.ring.mem))
	return nil
}

func (c *afCapture) isSkipped(l *link) bool {
	return slices.ContainsFunc(c.rec.skipped, func(a InterfaceAccount) bool { return a.Index == l.index && a.Name == l.name })
}

func (c *afCapture) skip(l *link, why string) {
	c.log.Warn("Skipping interface", "interface", l.name, "reason", why)
	// A target that may administer its network can make interfaces without end, and each note is memory.
	if len(c.rec.skipped) < maxNotes {
		c.rec.skipped = append(c.rec.skipped, InterfaceAccount{Name: l.name, Index: l.index, Note: why})
	}
}

// unskip takes back the note on an interface that was not there.
func (c *afCapture) unskip(name string) {
	c.rec.skipped = slices.DeleteFunc(c.rec.skipped, func(a InterfaceAccount) bool { return a.Name == name })
}

// noteMissing says which of the named interfaces are not there (yet).
func (c *afCapture) noteMissing() {
	for _, name := range c.cfg.Interfaces {
		there := slices.ContainsFunc(c.sources, func(s *source) bool { return s.acct.Name == name }) ||
			slices.ContainsFunc(c.rec.skipped, func(a InterfaceAccount) bool { return a.Name == name })
		if !there {
			c.skip(&link{name: name}, "no such interface; it is captured as soon as it appears")
		}
	}
}
