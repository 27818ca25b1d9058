package capture

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// createFunc makes a new file.
type createFunc func(path string, mode os.FileMode) (output, error)

// recorder is where packets go once they are pcapng blocks: one file, or a ring of files, within the limits and above
// the floor of the disk, with an account of every packet. It knows nothing of how packets are taken from the kernel.
// An engine opens it, adds the interfaces, gives it batches of whole packet blocks, tells it what was lost on the way,
// and finishes it. All methods but Account belong to one goroutine.
type recorder struct {
	cfg    *Config // with its defaults
	log    *slog.Logger
	create createFunc
	space  disk.SpaceFunc // nil asks the kernel

	tracks  []*track
	skipped []InterfaceAccount // interfaces that are not captured, with a note
	files   []*recordFile      // oldest first; the last one is written
	out     output             // of the last file; nil when there is none to write
	removed uint64             // files that are no more
	written uint64             // packets ever, also those that are no more
	end     recordEnd

	next   *Account // what is to be published when so many bytes are in the last file
	nextAt uint64

	mu   sync.Mutex
	snap Account
}

// recordEnd is why packets are no longer written, if so.
type recordEnd struct {
	reason recording.Reason
	err    error
}

func newRecorder(cfg *Config, log *slog.Logger, create createFunc) *recorder {
	return &recorder{cfg: cfg, log: log, create: create}
}

// open begins the first file.
func (r *recorder) open() error {
	return r.begin()
}

// snapLen is how many bytes of a packet may be kept. In a ring of files half of one is left to packets, whatever
// else it has to hold, so that each packet finds room in an empty file.
func (r *recorder) snapLen() uint32 {
	n := uint64(r.cfg.SnapLen)
	if r.cfg.Rotate != nil {
		n = min(n, uint64(r.cfg.Rotate.MaxBytes/2)-uint64(pcapng.PacketLen(4)))
	}
	return uint32(n)
}

// fits tells why an interface with this description may not be added any more: its statistics will need room, too.
func (r *recorder) fits(desc []byte) (why string) {
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

// add describes an interface, whose packets may be written from then on.
func (r *recorder) add(desc []byte, acct InterfaceAccount) (*track, error) {
	if r.cfg.Rotate != nil && r.fileRoom() < uint64(len(desc))+statisticsLen {
		if err := r.rotate(); err != nil {
			r.fail(err)
			return nil, err
		}
	}
	if err := r.append(desc); err != nil {
		return nil, err
	}
	t := &track{id: uint32(len(r.tracks)), desc: desc, acct: acct}
	r.tracks = append(r.tracks, t)
	r.current().parts = append(r.current().parts, Counters{})
	return t, nil
}

// write takes a batch of packets and accounts for all of them, whether the limits and the disk let them be written or not.
func (r *recorder) write(b *batch) {
	head, rest := *b, batch{}
	for head.packets > 0 && r.end.reason == "" {
		left, tight := r.room(head.firstLen())
		if head.packets > left.packets || head.size > left.bytes {
			head, rest = head.split(left)
		}
		if head.packets > 0 {
			r.flush(&head)
		} else {
			r.full(tight)
		}
		head, rest = rest, batch{}
		if r.cfg.MaxPackets > 0 && r.written >= uint64(r.cfg.MaxPackets) && r.end.reason == "" {
			r.end.reason = recording.PacketLimit
		}
	}
	for i := range head.tallies {
		r.refuse(r.tracks[head.tallies[i].iface], head.tallies[i].packets)
	}
}

// over tells whether nothing more is written. What comes then needs no encoding: refuse counts it.
func (r *recorder) over() bool { return r.end.reason != "" }

// refuse counts packets that came after the end: beyond a limit, or lost because the disk did not take them.
func (r *recorder) refuse(t *track, packets uint64) {
	if r.end.err != nil {
		t.lose(packets, &t.acct.DroppedWriter)
	} else {
		t.acct.BeyondLimit += packets
	}
}

// full is called when a limit leaves no room for the next packet.
func (r *recorder) full(tight limit) {
	switch {
	case tight == limitDisk && r.pending() > 0:
		_ = r.sync() // to look again: what waits may take less, and who is told of a full disk is told how full
	case tight == limitDisk:
		r.fail(r.floor().Below())
	case r.cfg.Rotate == nil:
		r.end.reason = recording.ByteLimit
	default:
		if err := r.rotate(); err != nil {
			r.fail(err)
		}
	}
}

// flush appends a batch, and counts it as written.
func (r *recorder) flush(b *batch) {
	f := r.current()
	f.mark()
	f.size += b.size
	r.wrote(b)
	if n, err := r.out.Writev(b.runs); err != nil {
		r.refused(err, disk.Behind(b.runs, n))
	}
}

// wrote adds a batch that is on its way into the file.
func (r *recorder) wrote(b *batch) {
	f := r.current()
	r.written += b.packets
	for i := range b.tallies {
		n := &b.tallies[i]
		t := r.tracks[n.iface]
		t.acct.Received += n.packets
		t.acct.wrote(n)
		f.parts[n.iface].wrote(n)
	}
}

func (r *recorder) fail(err error) {
	r.end = recordEnd{reason: recording.Error, err: err}
	if disk.IsFull(err) {
		r.end.reason = recording.DiskFull
	}
}

// finish ends the last file with its statistics. It does so after a full disk, too: refused gave up room.
func (r *recorder) finish() error {
	if r.out == nil {
		return nil // a ring that could not begin its next file
	}
	_ = r.sync() // which says so to whom it concerns
	err := r.writeStatistics()
	if !disk.IsFull(err) {
		return err
	}
	// Others filled the disk since the last write. Statistics tell of all losses: some more packets are worth them.
	if gerr := r.giveUp(r.statisticsLen(), nil); gerr != nil {
		return errors.Join(err, gerr)
	}
	return r.writeStatistics()
}

// append writes whole blocks that are no packets, or nothing of them.
func (r *recorder) append(b []byte) error {
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

// close lets go of the file, which stays.
func (r *recorder) close() error {
	if r.out == nil {
		return nil
	}
	out := r.out
	r.out = nil
	return out.Close()
}
