package record

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Counters counts packets. In every snapshot
//
//	Received = Written + Overwritten + DroppedKernel + DroppedRing + DroppedWriter
//
// Packets in the ring are in none of them until they are written or lost.
type Counters struct {
	// Received counts the packets that passed the filter, whether or not they reached the file.
	Received uint64 `json:"received"`
	// Written counts the packets in the existing files.
	Written uint64 `json:"written"`
	// Overwritten counts packets that were in a file which a newer one replaced.
	Overwritten uint64 `json:"overwritten,omitempty"`
	// Bytes sums the captured lengths of the written packets in bytes, without the file's headers.
	Bytes uint64 `json:"bytes"`
	// DroppedRing counts packets for which the kernel found no room in the ring (tp_drops of PACKET_STATISTICS): the
	// writer was slower than the traffic.
	DroppedRing uint64 `json:"droppedRing"`
	// DroppedKernel counts packets that the kernel reported as received but never handed over. With TPACKET_V3 it is
	// zero. It makes a disagreement of the two counts visible.
	DroppedKernel uint64 `json:"droppedKernel"`
	// DroppedWriter counts packets that were read from the ring and could not be written (disk full).
	DroppedWriter uint64 `json:"droppedWriter"`
	// Truncated counts packets in the files with fewer bytes than on the wire.
	Truncated uint64 `json:"truncated"`
	// BeyondLimit counts packets that arrived after MaxPackets or MaxBytes was reached and before the capture was
	// detached. They are not in Received.
	BeyondLimit uint64 `json:"beyondLimit"`
	// FirstPacket and LastPacket are the time stamps of the earliest and latest written packet; zero if none.
	FirstPacket time.Time `json:"firstPacket,omitzero"`
	LastPacket  time.Time `json:"lastPacket,omitzero"`
}

// Dropped returns the number of packets that passed the filter and never were in a file.
func (c *Counters) Dropped() uint64 { return c.DroppedKernel + c.DroppedRing + c.DroppedWriter }

// AddsUp reports whether every received packet is in one of the other counts.
func (c *Counters) AddsUp() bool { return c.Received == c.Written+c.Overwritten+c.Dropped() }

func (c *Counters) add(o *Counters) {
	c.Received += o.Received
	c.Written += o.Written
	c.Overwritten += o.Overwritten
	c.Bytes += o.Bytes
	c.DroppedRing += o.DroppedRing
	c.DroppedKernel += o.DroppedKernel
	c.DroppedWriter += o.DroppedWriter
	c.Truncated += o.Truncated
	c.BeyondLimit += o.BeyondLimit
	c.span(o.FirstPacket, o.LastPacket)
}

// wrote adds packets that are in a file, to all counts but Received.
func (c *Counters) wrote(n *tally) {
	c.Written += n.packets
	c.Bytes += n.bytes
	c.Truncated += n.truncated
	if n.packets > 0 {
		c.span(stamp(n.first), stamp(n.latest))
	}
}

// unwrite subtracts packets that are no longer in the file. The time span stays, although it may include them.
func (c *Counters) unwrite(n *tally) {
	c.Written -= n.packets
	c.Bytes -= n.bytes
	c.Truncated -= n.truncated
}

// overwrite subtracts a removed file's packets. The caller must set the time span again.
func (c *Counters) overwrite(p *Counters) {
	c.Written -= p.Written
	c.Overwritten += p.Written
	c.Bytes -= p.Bytes
	c.Truncated -= p.Truncated
	c.FirstPacket, c.LastPacket = time.Time{}, time.Time{}
}

func (c *Counters) span(first, last time.Time) {
	if !first.IsZero() && (c.FirstPacket.IsZero() || first.Before(c.FirstPacket)) {
		c.FirstPacket = first
	}
	if last.After(c.LastPacket) {
		c.LastPacket = last
	}
}

// InterfaceAccount is the account of one interface. An interface that was deleted and created again has two.
type InterfaceAccount struct {
	Name     string          `json:"name"`
	Index    int             `json:"index"`
	LinkType pcapng.LinkType `json:"linkType,omitempty"`
	Counters
	// Frozen counts how often the kernel found the whole ring in use and stopped until the writer caught up.
	Frozen uint64 `json:"frozen,omitempty"`
	// Gone is true once the interface has left the namespace.
	Gone bool `json:"gone,omitempty"`
	// Gap is true if packets of the interface may be missing that are not counted. Note says why.
	Gap bool `json:"gap,omitempty"`
	// Odd is true if the interface is not captured because of its type, which may change.
	Odd bool `json:"-"`
	// Note says why the interface is not captured, or was not for a time; empty if it is.
	Note string `json:"note,omitempty"`
}

// Miss notes that packets may be missing that are not counted. The first cause stays.
func (a *InterfaceAccount) Miss(why string) {
	if !a.Gap {
		a.Gap, a.Note = true, why
	}
}

// File is one file of a capture.
type File struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Account is a snapshot of a capture: the totals, the existing files, oldest first, and the interfaces in the order of the
// files' interface blocks. Interfaces that are not captured follow, each with a note.
type Account struct {
	Counters
	// Engine is the name of the backend: "tcx", "clsact" or "afpacket".
	Engine string `json:"engine"`
	// EngineMessage says why the preferred backend was not used; empty if it was.
	EngineMessage string `json:"engineMessage,omitempty"`
	// Processes counts packets by their process; nil if the capture was not to name processes.
	Processes *Processes `json:"processes,omitempty"`
	// FileBytes is the size of all files.
	FileBytes  int64              `json:"fileBytes"`
	Files      []File             `json:"files"`
	Interfaces []InterfaceAccount `json:"interfaces"`
}

// Processes counts the captured packets by whether their process is named.
type Processes struct {
	// Message says why no packet names a process, or, if the packets are counted, why not all do; empty if that was possible.
	Message string `json:"message,omitempty"`
	// Named counts the packets that name their process, Reasons the others.
	Named   uint64                          `json:"named"`
	Reasons map[pcapng.ProcessReason]uint64 `json:"reasons,omitempty"`
}

// SetProcesses sets the account's Processes.
func (r *Recorder) SetProcesses(p Processes) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snap.Processes = &p
}

// SetEngine sets the account's Engine and EngineMessage.
func (r *Recorder) SetEngine(engine, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snap.Engine, r.snap.EngineMessage = engine, message
}

// snapshot returns the current account, without the engine's name.
func (r *Recorder) snapshot() *Account {
	a := &Account{Interfaces: make([]InterfaceAccount, 0, len(r.interfaces)+len(r.Skipped)), Files: make([]File, 0, len(r.files))}
	for _, i := range r.interfaces {
		a.Interfaces = append(a.Interfaces, i.Account)
	}
	a.Interfaces = append(a.Interfaces, r.Skipped...)
	for _, f := range r.files {
		a.Files = append(a.Files, File{Name: filepath.Base(f.path), Bytes: int64(f.size)})
	}
	return a
}

// show makes a snapshot visible to Account.
func (r *Recorder) show(a *Account) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.Engine, a.EngineMessage, a.Processes = r.snap.Engine, r.snap.EngineMessage, r.snap.Processes
	r.snap, r.next = *a, nil
}

// pending returns how many bytes are not in the file yet.
func (r *Recorder) pending() uint64 {
	if r.out == nil {
		return 0
	}
	return uint64(r.out.Pending())
}

// Taken returns how many bytes were taken for all files, with those that a ring has removed.
func (r *Recorder) Taken() uint64 {
	if r.out == nil {
		return r.earlier
	}
	return r.earlier + r.current().size
}

// InFile returns how many of them are in the files.
func (r *Recorder) InFile() uint64 {
	if r.out == nil {
		return r.earlier
	}
	return r.earlier + uint64(r.out.Size())
}

// Push starts writing all pending packets, and does not publish the account.
func (r *Recorder) Push() {
	if r.out == nil {
		return
	}
	if err := r.out.Push(); err != nil {
		r.writeFailed(err, nil)
	}
}

// Publish publishes the whole account: now, or when all packets that it counts are in the file.
func (r *Recorder) Publish() {
	if r.pending() > 0 {
		r.Flush()
	} else {
		r.show(r.snapshot())
	}
}

// Flush starts writing all pending packets, and publishes the account when they are in the file. A capture calls
// it every 100 ms.
func (r *Recorder) Flush() {
	if r.Push(); r.out != nil {
		r.current().forgetMarks(uint64(r.out.Size()) - min(uint64(r.out.Size()), r.statisticsLen()))
	}
	r.showNext()
	if r.next == nil {
		r.next, r.nextAt = r.snapshot(), r.current().size
		r.showNext()
	}
}

// showNext shows the next snapshot once all packets that it counts are in the file.
func (r *Recorder) showNext() {
	if r.next != nil && (r.out == nil || uint64(r.out.Size()) >= r.nextAt) {
		r.show(r.next)
	}
}

// PublishInterface publishes one interface's counters if all its packets are in the file; otherwise Flush does. It
// allocates only for a new interface.
func (r *Recorder) PublishInterface(i *Interface) {
	if r.next != nil || r.pending() > 0 {
		return
	}
	at := int(i.ID)
	r.mu.Lock()
	if at < len(r.snap.Interfaces) && r.snap.Interfaces[at].Index == i.Account.Index && len(r.snap.Files) == len(r.files) {
		r.snap.Interfaces[at] = i.Account
		r.snap.Files[len(r.files)-1].Bytes = int64(r.current().size)
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	r.Publish()
}

// PublishBatch publishes the counters of all interfaces in a batch.
func (r *Recorder) PublishBatch(b *Batch) {
	for i := range b.tallies {
		r.PublishInterface(r.interfaces[b.tallies[i].iface])
	}
}

// Account returns the last snapshot, with the totals.
func (r *Recorder) Account() Account {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := Account{
		Engine: r.snap.Engine, EngineMessage: r.snap.EngineMessage, Processes: r.snap.Processes,
		Interfaces: slices.Clone(r.snap.Interfaces), Files: slices.Clone(r.snap.Files),
	}
	for i := range a.Interfaces {
		a.add(&a.Interfaces[i].Counters)
	}
	for _, f := range a.Files {
		a.FileBytes += f.Bytes
	}
	return a
}
