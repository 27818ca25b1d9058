package capture

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/sonde-operator/sonde/agents/disk"
	"github.com/sonde-operator/sonde/agents/ending"
	"github.com/sonde-operator/sonde/internal/pcapng"
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

	mu   sync.Mutex
	snap Account
}

// recordEnd is why packets are no longer written, if so.
type recordEnd struct {
	reason ending.Reason
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

// fits tells whether an interface with this description may still be added: its statistics will need room, too.
func (r *recorder) fits(desc []byte) (string, bool) {
	need := uint64(len(desc)) + statisticsLen
	if r.cfg.DiskFloor != nil {
		if above, err := r.disk(need); err == nil && above < need {
			return "the disk has no room for its description", false
		}
	}
	if r.cfg.Rotate != nil {
		if r.headerLen()+need > uint64(r.cfg.Rotate.MaxBytes)/2 {
			return "the files of the ring are too small for its description", false
		}
		return "", true
	}
	if r.fileRoom() < need {
		return "the byte limit leaves no room for its description", false
	}
	return "", true
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

// write takes a batch of packets of one interface and accounts for all of them, whether the limits and the disk let
// them be written or not.
func (r *recorder) write(t *track, b *batch) {
	head, rest := *b, batch{}
	for head.packets > 0 && r.end.reason == "" {
		left, tight := r.room(head.firstLen())
		if head.packets > left.packets || head.size > left.bytes {
			head, rest = head.split(left)
		}
		if head.packets > 0 {
			r.flush(t, &head)
		} else {
			r.full(tight)
		}
		head, rest = rest, batch{}
		if r.cfg.MaxPackets > 0 && r.written >= uint64(r.cfg.MaxPackets) && r.end.reason == "" {
			r.end.reason = ending.PacketLimit
		}
	}
	r.refuse(t, head.packets)
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
	case tight == limitDisk:
		r.fail(r.floor().Below())
	case r.cfg.Rotate == nil:
		r.end.reason = ending.ByteLimit
	default:
		if err := r.rotate(); err != nil {
			r.fail(err)
		}
	}
}

// flush writes a batch. When the disk refuses, the file is cut back to whole blocks and what did not stay counts as
// dropped by the writer.
func (r *recorder) flush(t *track, b *batch) {
	f := r.current()
	written, err := r.out.Writev(b.runs)
	if err == nil {
		f.size += b.size
		r.wrote(t, b)
		return
	}
	r.fail(fmt.Errorf("write capture file: %w", err))
	// Give up a little more, so that the statistics, without which the file does not tell of its losses, find room.
	kept := keepWhole(b, written, uint64(len(r.tracks))*statisticsLen)
	if terr := r.out.Truncate(int64(f.size + kept.size)); terr != nil {
		r.end.err = errors.Join(r.end.err, fmt.Errorf("cut capture file to whole blocks: %w", terr))
	}
	f.size += kept.size
	r.wrote(t, &kept)
	t.lose(b.packets-kept.packets, &t.acct.DroppedWriter)
}

// wrote adds a batch that is in the file.
func (r *recorder) wrote(t *track, b *batch) {
	if b.packets > 0 {
		f := r.current()
		f.last, f.lastAt = t, f.size-b.size
	}
	r.written += b.packets
	t.acct.Received += b.packets
	t.acct.wrote(b)
	r.current().parts[t.id].wrote(b)
}

func (r *recorder) fail(err error) {
	r.end = recordEnd{reason: ending.Error, err: err}
	if disk.IsFull(err) {
		r.end.reason = ending.DiskFull
	}
}

// finish ends the last file with its statistics. It does so after a full disk, too: flush gave up room.
func (r *recorder) finish() error {
	if r.out == nil {
		return nil // a ring that could not begin its next file
	}
	err := r.writeStatistics()
	if !disk.IsFull(err) {
		return err
	}
	// Others filled the disk since the last write. Statistics tell of all losses: some more packets are worth them.
	if gerr := r.giveUp(uint64(len(r.tracks)) * statisticsLen); gerr != nil {
		return errors.Join(err, gerr)
	}
	return r.writeStatistics()
}

// giveUp takes the last packets out of the current file, so that so many bytes of what it holds on the disk are free.
func (r *recorder) giveUp(bytes uint64) error {
	f := r.current()
	if f.last == nil {
		return nil // no packets to give up
	}
	b, err := readTail(f.path, f.lastAt, f.size)
	if err != nil {
		return err
	}
	kept := keepWhole(b, b.size, bytes)
	if err := r.out.Truncate(int64(f.lastAt + kept.size)); err != nil {
		return fmt.Errorf("make room for statistics: %w", err)
	}
	f.size = f.lastAt + kept.size
	for _, c := range []*Counters{&f.last.acct.Counters, &f.parts[f.last.id]} {
		c.Written -= b.packets - kept.packets
		c.Bytes -= b.bytes - kept.bytes
		c.Truncated -= b.truncated - kept.truncated
	}
	f.last.acct.DroppedWriter += b.packets - kept.packets
	return nil
}

// append writes whole blocks, or nothing of them.
func (r *recorder) append(b []byte) error {
	f := r.current()
	if _, err := r.out.Writev([][]byte{b}); err != nil {
		err = fmt.Errorf("write capture file: %w", err)
		if terr := r.out.Truncate(int64(f.size)); terr != nil {
			err = errors.Join(err, fmt.Errorf("cut capture file to whole blocks: %w", terr))
		}
		return err
	}
	f.size += uint64(len(b))
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
