package output

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// fail handles an error of the disk. rest are the lines after the pending ones. It truncates the file to whole events
// and leaves room for the last line. Events that are not in the file are lost.
func (w *File) fail(err error, rest []byte) error {
	w.err = fmt.Errorf("write trace file: %w", err)
	kept, lost, err := w.keep(slices.Concat(slices.Concat(w.out.Unwritten()...), rest))
	if err == nil {
		err = w.out.Truncate(kept)
	}
	if err != nil {
		kept, lost = w.out.Size(), w.Pending()
		w.err = errors.Join(w.err, fmt.Errorf("truncate trace file to whole lines: %w", err))
	}
	w.taken, w.lost, w.marks = kept, lost, nil
	return w.err
}

// keep returns how many bytes of the file may stay, and how many events are then lost. unwritten are the lines after
// the end of the file. It reads the file from its end, in a growing window.
func (w *File) keep(unwritten []byte) (kept int64, lost uint64, err error) {
	size := w.out.Size()
	for window := w.spare + BufferBytes; ; window *= 2 {
		from := max(w.header, size-window)
		lines := make([]byte, size-from, size-from+int64(len(unwritten)))
		if err := w.out.ReadAt(lines, from); err != nil {
			return 0, 0, err
		}
		lines = append(lines, unwritten...)
		if end := lastWhole(lines, int(max(from, size-w.spare)-from), w.perEvent); end > 0 || from == w.header {
			return from + int64(end), uint64(bytes.Count(lines[end:], newline) / w.perEvent), nil
		}
	}
}

// lastWhole returns where the last whole event before limit ends; zero if none does. lines must end with an event.
func lastWhole(lines []byte, limit, perEvent int) int {
	end := bytes.LastIndexByte(lines[:limit], '\n') + 1
	for range (perEvent - bytes.Count(lines[end:], newline)%perEvent) % perEvent {
		end = bytes.LastIndexByte(lines[:max(0, end-1)], '\n') + 1
	}
	return end
}
