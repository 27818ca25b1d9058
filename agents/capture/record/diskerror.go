package record

import (
	"errors"
	"fmt"
	"slices"
)

// markEvery is the distance of marks in bytes. At most so much of a file is read to find where its packets begin.
const markEvery = 64 << 10

// mark records that a packet begins at the file's end.
func (f *file) mark() {
	if len(f.marks) == 0 || f.size-f.marks[len(f.marks)-1] >= markEvery {
		f.marks = append(f.marks, f.size)
	}
}

// forgetMarks drops the marks that are not needed to cut packets after offset.
func (f *file) forgetMarks(offset uint64) {
	n := 0
	for n+1 < len(f.marks) && f.marks[n+1] <= offset {
		n++
	}
	f.marks = slices.Delete(f.marks, 0, n)
}

// packetBefore returns the last known start of a packet up to offset.
func (f *file) packetBefore(offset uint64) uint64 {
	at := f.fixed
	for _, m := range f.marks {
		if m <= offset {
			at = max(at, m)
		}
	}
	return at
}

// statisticsLen returns how many bytes the statistics of all interfaces need.
func (r *Recorder) statisticsLen() uint64 { return uint64(len(r.interfaces)) * statisticsLen }

// sync returns when all pending bytes are in the file.
func (r *Recorder) sync() error {
	err := r.out.Flush()
	if err != nil {
		r.writeFailed(err, nil)
		return r.end.err
	}
	return nil
}

// writeFailed ends the capture after an error of this write or an earlier one. It cuts the file to whole blocks, and
// cuts some more packets to make room for the statistics, which report the losses. All these packets count as dropped
// by the writer. rest are the bytes that the output did not take.
func (r *Recorder) writeFailed(err error, rest [][]byte) {
	r.fail(fmt.Errorf("write capture file: %w", err))
	if err := r.cutPackets(r.statisticsLen(), rest); err != nil {
		r.end.err = errors.Join(r.end.err, err)
	}
	r.next = nil // it may count packets that were cut
}

// cutPackets cuts at least so many bytes off the end of the current file, to whole packets. It subtracts from the
// account the packets after the cut, the pending ones, and rest.
func (r *Recorder) cutPackets(bytes uint64, rest [][]byte) error {
	_ = r.out.Flush() // after an error it writes nothing
	f := r.current()
	size := uint64(r.out.Size())
	keep := max(f.fixed, size-min(size, bytes))
	from := f.packetBefore(keep)
	read := make([]byte, max(size, from)-from)
	if err := r.out.ReadAt(read, int64(from)); err != nil {
		return fmt.Errorf("find the last whole packet: %w", err)
	}
	all := slices.Concat([][]byte{read}, r.out.Unwritten(), rest)
	_, lost := (&Batch{runs: [][]byte{slices.Concat(all...)}}).split(room{packets: unlimited.packets, bytes: keep - from})
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
