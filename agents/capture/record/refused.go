package record

import (
	"errors"
	"fmt"
	"slices"
)

// markEvery is how many bytes lie between marks: that much of a file is read and walked to find where its packets begin.
const markEvery = 64 << 10

// mark takes note that a packet begins at the file's end.
func (f *file) mark() {
	if len(f.marks) == 0 || f.size-f.marks[len(f.marks)-1] >= markEvery {
		f.marks = append(f.marks, f.size)
	}
}

// forgetMarks drops those that nobody will look for any more, when whatever is given up lies behind a place.
func (f *file) forgetMarks(place uint64) {
	n := 0
	for n+1 < len(f.marks) && f.marks[n+1] <= place {
		n++
	}
	f.marks = slices.Delete(f.marks, 0, n)
}

// packetBefore is where a packet begins, at a place or before it.
func (f *file) packetBefore(place uint64) uint64 {
	at := f.fixed
	for _, m := range f.marks {
		if m <= place {
			at = max(at, m)
		}
	}
	return at
}

// statisticsLen is what the statistics of all interfaces need.
func (r *Recorder) statisticsLen() uint64 { return uint64(len(r.interfaces)) * statisticsLen }

// sync has all that was written so far in the file.
func (r *Recorder) sync() error {
	err := r.out.Flush()
	if err != nil {
		r.refused(err, nil)
		return r.end.err
	}
	return nil
}

// refused ends the capture when the disk refuses: now, or what was taken before. The file is cut back to whole blocks, what
// did not stay counts as dropped by the writer, and rest is what the file did not even take. A little more is given up, so
// that the statistics, without which the file does not tell of its losses, find room.
func (r *Recorder) refused(err error, rest [][]byte) {
	r.fail(fmt.Errorf("write capture file: %w", err))
	if err := r.giveUp(r.statisticsLen(), rest); err != nil {
		r.end.err = errors.Join(r.end.err, err)
	}
	r.next = nil // what it says may never be there
}

// giveUp cuts the current file to whole packets, so many bytes before the end of what is on the disk, and takes all others
// out of the account, with those that wait and rest behind them.
func (r *Recorder) giveUp(bytes uint64, rest [][]byte) error {
	_ = r.out.Flush() // after an error nothing more is written
	f := r.current()
	there := uint64(r.out.Size())
	keep := max(f.fixed, there-min(there, bytes))
	from := f.packetBefore(keep)
	read := make([]byte, max(there, from)-from)
	if err := r.out.ReadAt(read, int64(from)); err != nil {
		return fmt.Errorf("find the last whole packet: %w", err)
	}
	all := slices.Concat([][]byte{read}, r.out.Unwritten(), rest)
	_, lost := (&Batch{runs: [][]byte{slices.Concat(all...)}}).split(room{packets: everything.packets, bytes: keep - from})
	if err := r.out.Truncate(int64(f.size - lost.size)); err != nil {
		return fmt.Errorf("cut capture file to whole blocks: %w", err)
	}
	f.size -= lost.size
	for i := range lost.tallies {
		n := &lost.tallies[i]
		a := &r.interfaces[n.iface].Account
		a.unwrite(n)
		f.parts[n.iface].unwrite(n)
		a.DroppedWriter += n.packets
	}
	return nil
}
