// Package record writes captured packets to a pcapng file, or a ring of files, within the limits and above the disk floor,
// and accounts for every packet. It does not know how a backend reads packets from the kernel.
//
//	recorder.go  accepts batches of whole packet blocks
//	limits.go    how many packets and bytes may still be written
//	batch.go     splits a batch where a file or a limit ends
//	rotate.go    one file, or a ring of files
//	output.go    writes past the page cache and in the background (disk.Appender)
//	diskerror.go cuts the file to whole packets when a write fails
//	account.go   counts everything, and publishes the counts once the packets are in the file
package record

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Recorder writes packets that are already encoded as pcapng blocks. The engine opens it, adds the interfaces and
// finishes it. A backend gives it batches and counts lost packets. All methods but Account belong to one goroutine.
type Recorder struct {
	// Skipped are interfaces that are not captured, each with a note.
	Skipped []InterfaceAccount

	cfg    *Config
	log    *slog.Logger
	create CreateFunc
	space  disk.SpaceFunc // nil asks the kernel

	interfaces []*Interface
	files      []*file // oldest first; the last one is written
	out        Output  // writes the last file; nil while none is open
	removed    uint64  // number of removed files
	written    uint64  // all written packets, including removed files
	earlier    uint64  // bytes of the files before the last one
	end        end

	next   *Account // the account to publish when nextAt bytes are in the last file
	nextAt uint64

	mu   sync.Mutex
	snap Account
}

// end is why packets are no longer written; its reason is empty while they are.
type end struct {
	reason recording.Reason
	err    error
}

// New returns a recorder that creates its files by create. Nothing is written before Open.
func New(cfg *Config, log *slog.Logger, create CreateFunc) *Recorder {
	return &Recorder{cfg: cfg, log: log, create: create}
}

// Open begins the first file.
func (r *Recorder) Open() error { return r.begin() }

// Path returns the path of the newest file.
func (r *Recorder) Path() string { return r.current().path }

// End returns why packets are no longer written. An empty reason means that they are. The error explains
// recording.DiskFull and recording.Error.
func (r *Recorder) End() (recording.Reason, error) { return r.end.reason, r.end.err }

// Ended reports whether packets are no longer written. A backend need not encode more packets: Reject counts them.
func (r *Recorder) Ended() bool { return r.end.reason != "" }

// NumInterfaces returns the number of added interfaces. Their IDs are smaller.
func (r *Recorder) NumInterfaces() int { return len(r.interfaces) }

// SnapLen returns how many bytes of a packet may be kept. In a ring, half of each file is reserved for packets, so that
// each packet fits into an empty file.
func (r *Recorder) SnapLen() uint32 {
	n := uint64(r.cfg.SnapLen)
	if r.cfg.Rotate != nil {
		n = min(n, uint64(r.cfg.Rotate.MaxBytes/2)-uint64(pcapng.PacketLen(4)+r.cfg.OptionsLen))
	}
	return uint32(n)
}

// CanAdd returns why an interface with this description may not be added; empty if it may. The file must have room for
// its statistics, too.
func (r *Recorder) CanAdd(desc []byte) (why string) {
	need := uint64(len(desc)) + statisticsLen
	if r.cfg.DiskFloor != nil {
		above, err := r.disk(need)
		if err == nil && above < need && r.pending() > 0 && r.sync() == nil {
			above, err = r.disk(need)
		}
		if err == nil && above < need {
			return "the disk has no room for its description"
		}
	}
	if r.cfg.Rotate != nil {
		if r.headerLen()+need > uint64(r.cfg.Rotate.MaxBytes)/2 {
			return "the files of the ring are too small for its description"
		}
		return ""
	}
	if r.fileRoom() < need {
		return "the byte limit leaves no room for its description"
	}
	return ""
}

// Add writes an interface's description block. Packets of the interface may be written from then on.
func (r *Recorder) Add(desc []byte, acct InterfaceAccount) (*Interface, error) {
	if r.cfg.Rotate != nil && r.fileRoom() < uint64(len(desc))+statisticsLen {
		if err := r.rotate(); err != nil {
			r.fail(err)
			return nil, err
		}
	}
	if err := r.append(desc); err != nil {
		return nil, err
	}
	i := &Interface{ID: uint32(len(r.interfaces)), desc: desc, Account: acct}
	r.interfaces = append(r.interfaces, i)
	r.current().parts = append(r.current().parts, Counters{})
	return i, nil
}

// Write takes a batch of packets and accounts for all of them, whether or not the limits and the disk let them be written.
func (r *Recorder) Write(b *Batch) {
	head, rest := *b, Batch{}
	for head.packets > 0 && r.end.reason == "" {
		left, by := r.room(head.firstLen())
		if head.packets > left.packets || head.size > left.bytes {
			head, rest = head.split(left)
		}
		if head.packets > 0 {
			r.writeBatch(&head)
		} else {
			r.full(by)
		}
		head, rest = rest, Batch{}
		if r.cfg.MaxPackets > 0 && r.written >= uint64(r.cfg.MaxPackets) && r.end.reason == "" {
			r.end.reason = recording.PacketLimit
		}
	}
	for i := range head.tallies {
		r.Reject(r.interfaces[head.tallies[i].iface], head.tallies[i].packets)
	}
}

// Reject counts packets that arrived after the end: beyond a limit, or lost because a write failed.
func (r *Recorder) Reject(i *Interface, packets uint64) {
	if r.end.err != nil {
		i.Lose(packets, &i.Account.DroppedWriter)
	} else {
		i.Account.BeyondLimit += packets
	}
}

// full is called when the limit reached leaves no room for the next packet.
func (r *Recorder) full(reached limit) {
	switch {
	case reached == limitDisk && r.pending() > 0:
		_ = r.sync() // then check again: pending bytes may take less space, and the error must state the true free space
	case reached == limitDisk:
		r.fail(r.fullError())
	case r.cfg.Rotate == nil:
		r.end.reason = recording.ByteLimit
	default:
		if err := r.rotate(); err != nil {
			r.fail(err)
		}
	}
}

// writeBatch appends a batch, and counts it as written.
func (r *Recorder) writeBatch(b *Batch) {
	f := r.current()
	f.mark()
	f.size += b.size
	r.countWritten(b)
	if n, err := r.out.Writev(b.runs); err != nil {
		r.writeFailed(err, disk.Skip(b.runs, n))
	}
}

// countWritten adds a batch to the counts. Its bytes may still be pending.
func (r *Recorder) countWritten(b *Batch) {
	f := r.current()
	r.written += b.packets
	for i := range b.tallies {
		n := &b.tallies[i]
		a := &r.interfaces[n.iface].Account
		a.Received += n.packets
		a.wrote(n)
		f.parts[n.iface].wrote(n)
	}
}

func (r *Recorder) fail(err error) {
	r.end = end{reason: recording.Error, err: err}
	if disk.IsFull(err) {
		r.end.reason = recording.DiskFull
	}
}

// Finish ends the last file with its statistics, even after a full disk: writeFailed made room for them.
func (r *Recorder) Finish() error {
	if r.out == nil {
		return nil // a ring that could not begin its next file
	}
	_ = r.sync() // an error is in End
	err := r.writeStatistics()
	if !disk.IsFull(err) {
		return err
	}
	// Other processes filled the disk since the last write. Statistics report all losses: cut some packets to make room.
	if gerr := r.cutPackets(r.statisticsLen(), nil); gerr != nil {
		return errors.Join(err, gerr)
	}
	return r.writeStatistics()
}

// append writes whole blocks other than packets, all of them or none.
func (r *Recorder) append(b []byte) error {
	if err := r.sync(); err != nil {
		return err
	}
	f := r.current()
	_, err := r.out.Writev([][]byte{b})
	if err == nil {
		err = r.out.Flush()
	}
	if err != nil {
		err = fmt.Errorf("write capture file: %w", err)
		if terr := r.out.Truncate(int64(f.size)); terr != nil {
			err = errors.Join(err, fmt.Errorf("cut capture file to whole blocks: %w", terr))
		}
		return err
	}
	f.size += uint64(len(b))
	f.fixed, f.marks = f.size, nil
	return nil
}

// Close closes the current file without removing it.
func (r *Recorder) Close() error {
	if r.out == nil {
		return nil
	}
	out := r.out
	r.out = nil
	return out.Close()
}
