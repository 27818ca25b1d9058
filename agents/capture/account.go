package capture

import (
	"slices"
	"time"

	"github.com/sonde-operator/sonde/internal/pcapng"
)

// Counters counts packets. In every snapshot
//
//	Received = Written + DroppedKernel + DroppedRing + DroppedWriter
//
// Packets that wait in the ring are in none of them until they are written or lost.
type Counters struct {
	// Received counts the packets that passed the filter, whether or not they reached the file.
	Received uint64 `json:"received"`
	// Written counts the packets in the file.
	Written uint64 `json:"written"`
	// Bytes sums their captured lengths in bytes, without the file's own headers.
	Bytes uint64 `json:"bytes"`
	// DroppedRing counts packets for which the kernel found no room in the ring (tp_drops of PACKET_STATISTICS): the
	// writer was slower than the traffic.
	DroppedRing uint64 `json:"droppedRing"`
	// DroppedKernel counts packets that the kernel reported as received but never handed over. With TPACKET_V3 this
	// is zero; it is there so that a disagreement of the two counts can never hide.
	DroppedKernel uint64 `json:"droppedKernel"`
	// DroppedWriter counts packets that were taken from the ring and could not be written (disk full).
	DroppedWriter uint64 `json:"droppedWriter"`
	// Truncated counts written packets of which fewer bytes were captured than were on the wire.
	Truncated uint64 `json:"truncated"`
	// BeyondLimit counts packets that came after MaxPackets or MaxBytes was reached and before the capture was
	// detached. They are not in Received.
	BeyondLimit uint64 `json:"beyondLimit"`
	// FirstPacket and LastPacket are the time stamps of the earliest and latest written packet; zero if none.
	FirstPacket time.Time `json:"firstPacket,omitzero"`
	LastPacket  time.Time `json:"lastPacket,omitzero"`
}

// Dropped is the number of packets that passed the filter and are not in the file.
func (c *Counters) Dropped() uint64 { return c.DroppedKernel + c.DroppedRing + c.DroppedWriter }

func (c *Counters) add(o *Counters) {
	c.Received += o.Received
	c.Written += o.Written
	c.Bytes += o.Bytes
	c.DroppedRing += o.DroppedRing
	c.DroppedKernel += o.DroppedKernel
	c.DroppedWriter += o.DroppedWriter
	c.Truncated += o.Truncated
	c.BeyondLimit += o.BeyondLimit
	c.span(o.FirstPacket, o.LastPacket)
}

func (c *Counters) span(first, last time.Time) {
	if !first.IsZero() && (c.FirstPacket.IsZero() || first.Before(c.FirstPacket)) {
		c.FirstPacket = first
	}
	if last.After(c.LastPacket) {
		c.LastPacket = last
	}
}

// InterfaceAccount is the account of one interface. An interface that was deleted and made anew has two.
type InterfaceAccount struct {
	Name     string          `json:"name"`
	Index    int             `json:"index"`
	LinkType pcapng.LinkType `json:"linkType,omitempty"`
	Counters
	// Frozen counts how often the kernel found the whole ring in use and stopped until the writer caught up.
	Frozen uint64 `json:"frozen,omitempty"`
	// Gone is true once the interface has left the namespace.
	Gone bool `json:"gone,omitempty"`
	// Note says why an interface is not captured; empty if it is.
	Note string `json:"note,omitempty"`
}

// Account is a snapshot of a capture: the totals and the interfaces in the order of the file's interface blocks;
// interfaces that are not captured follow, each with a note.
type Account struct {
	Counters
	// FileBytes is the size of the file.
	FileBytes  int64              `json:"fileBytes"`
	Interfaces []InterfaceAccount `json:"interfaces"`
}

// publish replaces the whole snapshot.
func (c *afCapture) publish() {
	a := Account{Interfaces: make([]InterfaceAccount, 0, len(c.sources)+len(c.skipped))}
	for _, s := range c.sources {
		a.Interfaces = append(a.Interfaces, s.acct)
		a.add(&s.acct.Counters)
	}
	a.Interfaces = append(a.Interfaces, c.skipped...)
	a.FileBytes = int64(c.size)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.snap = a
}

// publishSource puts one source's counters into the snapshot, without allocation unless the source is new.
func (c *afCapture) publishSource(s *source) {
	i := int(s.enc.iface)
	c.mu.Lock()
	if i < len(c.snap.Interfaces) && c.snap.Interfaces[i].Index == s.acct.Index {
		c.snap.Interfaces[i] = s.acct
		c.snap.FileBytes = int64(c.size)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.publish()
}

// Account implements Capture.
func (c *afCapture) Account() Account {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := Account{FileBytes: c.snap.FileBytes, Interfaces: slices.Clone(c.snap.Interfaces)}
	for i := range a.Interfaces {
		a.add(&a.Interfaces[i].Counters)
	}
	return a
}
