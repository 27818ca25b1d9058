package trace

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// fail takes note that the disk refused: rest is what was to be taken behind what the file has and what waits for it. The file
// is cut back to whole events, and to what leaves room for the last line, and the events that are not in it are lost.
func (w *File) fail(err error, rest []byte) error {
	w.reason = fmt.Errorf("write trace file: %w", err)
	kept, lost, err := w.keep(slices.Concat(slices.Concat(w.out.Unwritten()...), rest))
	if err == nil {
		err = w.out.Truncate(kept)
	}
	if err != nil {
		kept, lost = w.out.Size(), w.Pending()
		w.reason = errors.Join(w.reason, fmt.Errorf("cut trace file to whole lines: %w", err))
	}
	w.taken, w.lost, w.marks = kept, lost, nil
	return w.reason
}

// keep is how much of the file may stay when there are so many bytes of lines behind it, and how many events then are lost.
// It reads the file from its end, further and further.
func (w *File) keep(behind []byte) (kept int64, lost uint64, err error) {
	size := w.out.Size()
	for window := w.spare + lineBuffer; ; window *= 2 {
		from := max(w.header, size-window)
		lines := make([]byte, size-from, size-from+int64(len(behind)))
		if err := w.out.ReadAt(lines, from); err != nil {
			return 0, 0, err
		}
		lines = append(lines, behind...)
		if end := lastWhole(lines, int(max(from, size-w.spare)-from), w.each); end > 0 || from == w.header {
			return from + int64(end), uint64(bytes.Count(lines[end:], newline) / w.each), nil
		}
	}
}

// lastWhole is where, up to a place, the last whole event of lines ends, with whose last one they end; zero if none does.
func lastWhole(lines []byte, place, each int) int {
	end := bytes.LastIndexByte(lines[:place], '\n') + 1
	for range (each - bytes.Count(lines[end:], newline)%each) % each {
		end = bytes.LastIndexByte(lines[:max(0, end-1)], '\n') + 1
	}
	return end
}
