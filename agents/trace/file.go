package trace

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/sonde-operator/sonde/agents/node/disk"
)

// errByteLimit ends a trace whose file has no room for the next line.
var errByteLimit = errors.New("the file's limit is reached")

// File is where a trace's lines go: whole lines, within a limit and above the floor of the disk. Its methods, but Size,
// belong to one goroutine.
type File struct {
	out    *disk.Appender
	floor  disk.Floor
	header int64 // the length of what is no event's
	most   int64 // 0 is no limit
	spare  int64 // for the last line

	taken  int64  // bytes that out was given
	each   int    // lines of each event
	marks  []mark // of what may not be in the file yet, in its order
	lost   uint64 // events that were taken and will never be there
	reason error  // why
}

// mark is where the lines of events end that were taken together.
type mark struct {
	end    int64
	events int
}

// FileConfig says how a file is to be.
type FileConfig struct {
	Path string
	Mode os.FileMode
	// Header is the first line; empty is none.
	Header []byte
	// MaxBytes of all; zero is no limit. Of these, Spare are kept for the last line.
	MaxBytes, Spare int64
	Floor           disk.Floor
}

// CreateFile makes a file; it never replaces one. It has its name only when its header is in it.
func CreateFile(c *FileConfig) (*File, error) {
	f, err := disk.Create(c.Path, c.Mode)
	if err != nil {
		return nil, err
	}
	w := &File{floor: c.Floor, most: c.MaxBytes, spare: c.Spare}
	w.out, err = disk.NewAppender(f)
	if err == nil && len(c.Header) > 0 {
		err = w.head(c.Header)
	}
	if err == nil {
		err = disk.Place(c.Path)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close(), disk.Discard(c.Path))
	}
	return w, nil
}

// head begins the file with a line that is none of an event.
func (w *File) head(line []byte) error {
	if room, err := w.room(len(line)); err != nil || room < len(line) {
		return err
	}
	if _, err := w.out.Append(line); err != nil {
		return fmt.Errorf("write trace file: %w", err)
	}
	if err := w.out.Flush(); err != nil {
		return fmt.Errorf("write trace file: %w", err)
	}
	w.taken, w.header = int64(len(line)), int64(len(line))
	return nil
}

// Write takes the lines of so many events and returns how many: all, or as many as there is room for, and why. They are in
// the file after Flush, or by and by.
func (w *File) Write(lines []byte, events int) (taken int, err error) {
	if w.reason != nil {
		return 0, w.reason
	}
	if room, err := w.room(eventLen(lines, 1)); err == nil && room >= len(lines) {
		return w.append(lines, events) // without a look at each
	}
	each := linesOfEach(lines, events)
	for len(lines) > 0 {
		room, err := w.room(eventLen(lines, each))
		if err != nil {
			return taken, err
		}
		part := wholeEvents(lines, room, each)
		n, err := w.append(part, bytes.Count(part, newline)/each)
		taken += n
		if err != nil {
			return taken, err
		}
		lines = lines[len(part):]
	}
	return taken, nil
}

// append takes lines. When the disk refuses, now or what was taken before, they count as taken and lost.
func (w *File) append(lines []byte, events int) (taken int, err error) {
	if w.each == 0 {
		w.each = linesOfEach(lines, events)
	}
	n, err := w.out.Append(lines)
	w.taken += int64(len(lines))
	w.marks = append(w.marks, mark{end: w.taken, events: events})
	if err != nil {
		err = w.fail(err, lines[n:])
	}
	return events, err
}

// Flush has what was taken in the file soon, or when it returns. After an error what is Pending will never be there.
func (w *File) Flush(wait bool) error {
	flush := w.out.Push
	if wait {
		flush = w.out.Flush
	}
	if err := flush(); err != nil {
		return w.fail(err, nil)
	}
	return w.reason
}

// Pending is how many events were taken and are not in the file.
func (w *File) Pending() uint64 {
	size := w.out.Size()
	w.marks = slices.DeleteFunc(w.marks, func(m mark) bool { return m.end <= size })
	pending := w.lost
	for _, m := range w.marks {
		pending += uint64(m.events)
	}
	return pending
}

// Last appends the last line, for which there is spare room, and closes the file.
func (w *File) Last(line []byte) error {
	_, err := w.out.Append(line)
	if err != nil {
		err = fmt.Errorf("write trace file: %w", err)
	}
	return errors.Join(err, w.Close())
}

// Close lets go of the file, which stays with all that was taken.
func (w *File) Close() error {
	if w.out == nil {
		return nil
	}
	if err := w.out.Close(); err != nil {
		return fmt.Errorf("write trace file: %w", err)
	}
	return nil
}

// Size of the file in bytes.
func (w *File) Size() int64 { return w.out.Size() }

// room is how many bytes of lines may be written, or why not even the next one may.
func (w *File) room(need int) (int, error) {
	left := int64(math.MaxInt64)
	if w.most > 0 {
		left = w.most - w.taken - w.spare
	}
	if left < int64(need) {
		return 0, errByteLimit
	}
	above, err := w.floor.Room(uint64(need), uint64(w.spare))
	if err != nil {
		return 0, err
	}
	// What waits is part of it: others, who write to the same disk, do not see it yet.
	waits := uint64(w.out.Pending())
	above -= min(above, waits)
	switch {
	case above >= uint64(need):
		return int(min(uint64(left), above, math.MaxInt)), nil
	case waits == 0:
		return 0, w.floor.Below()
	}
	if err := w.Flush(true); err != nil {
		return 0, err
	}
	return w.room(need)
}

var newline = []byte{'\n'}

// linesOfEach is how many lines each of so many events has: all have as many.
func linesOfEach(lines []byte, events int) int {
	return max(1, bytes.Count(lines, newline)/max(1, events))
}

// eventLen is the length of the first event's lines.
func eventLen(lines []byte, each int) int {
	at := 0
	for range each {
		i := bytes.IndexByte(lines[at:], '\n')
		if i < 0 {
			return len(lines)
		}
		at += i + 1
	}
	return at
}

// wholeEvents are the lines of the events that fit into so many bytes.
func wholeEvents(lines []byte, room, each int) []byte {
	if room >= len(lines) {
		return lines
	}
	lines = lines[:room]
	lines = lines[:bytes.LastIndexByte(lines, '\n')+1]
	for range bytes.Count(lines, newline) % each {
		lines = lines[:bytes.LastIndexByte(lines[:len(lines)-1], '\n')+1]
	}
	return lines
}
