package output

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/sonde-operator/sonde/agents/node/disk"
)

// errByteLimit ends a trace whose file has no room for the next event.
var errByteLimit = errors.New("the file's limit is reached")

// File is a trace's result: whole lines, within a limit and above the floor of the disk. Its methods belong to one
// goroutine, except Size.
type File struct {
	out    *disk.Appender
	floor  disk.Floor
	header int64 // bytes of the header
	max    int64 // bytes; 0 is no limit
	spare  int64 // bytes for the last line

	taken    int64  // bytes that were given to out
	perEvent int    // lines of each event
	marks    []mark // ends of events that may not be in the file yet, in order
	lost     uint64 // taken events that will never be in the file
	err      error  // why they are lost
}

// mark is the end of the lines of events that were taken together.
type mark struct {
	end    int64
	events int
}

// FileConfig of a File.
type FileConfig struct {
	Path string
	Mode os.FileMode
	// Header is the first line; empty means none.
	Header []byte
	// MaxBytes of the file; zero means no limit. Spare of them are reserved for the last line.
	MaxBytes, Spare int64
	Floor           disk.Floor
}

// CreateFile creates a file; it never replaces one. The file gets its name when its header is in it.
func CreateFile(c *FileConfig) (*File, error) {
	f, err := disk.Create(c.Path, c.Mode)
	if err != nil {
		return nil, err
	}
	w := &File{floor: c.Floor, max: c.MaxBytes, spare: c.Spare}
	w.out, err = disk.NewAppender(f)
	if err == nil && len(c.Header) > 0 {
		err = w.writeHeader(c.Header)
	}
	if err == nil {
		err = disk.Place(c.Path)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close(), disk.Discard(c.Path))
	}
	return w, nil
}

// writeHeader writes the first line, which is not an event.
func (w *File) writeHeader(line []byte) error {
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

// Write takes the lines of events, and returns how many events it took. If that is not all, the error is the reason.
// The lines are in the file after Flush, or earlier.
func (w *File) Write(lines []byte, events int) (taken int, err error) {
	if w.err != nil {
		return 0, w.err
	}
	if room, err := w.room(eventLen(lines, 1)); err == nil && room >= len(lines) {
		return w.append(lines, events) // without finding the end of each
	}
	perEvent := linesPerEvent(lines, events)
	for len(lines) > 0 {
		room, err := w.room(eventLen(lines, perEvent))
		if err != nil {
			return taken, err
		}
		part := wholeEvents(lines, room, perEvent)
		n, err := w.append(part, bytes.Count(part, newline)/perEvent)
		taken += n
		if err != nil {
			return taken, err
		}
		lines = lines[len(part):]
	}
	return taken, nil
}

// append takes lines. If the disk refuses them, or lines taken before, they count as taken and lost.
func (w *File) append(lines []byte, events int) (taken int, err error) {
	if w.perEvent == 0 {
		w.perEvent = linesPerEvent(lines, events)
	}
	n, err := w.out.Append(lines)
	w.taken += int64(len(lines))
	w.marks = append(w.marks, mark{end: w.taken, events: events})
	if err != nil {
		err = w.fail(err, lines[n:])
	}
	return events, err
}

// Flush writes the taken events to the file: soon or, with wait, before it returns. After an error the Pending events
// are lost.
func (w *File) Flush(wait bool) error {
	flush := w.out.Push
	if wait {
		flush = w.out.Flush
	}
	if err := flush(); err != nil {
		return w.fail(err, nil)
	}
	return w.err
}

// Pending returns how many taken events are not in the file.
func (w *File) Pending() uint64 {
	size := w.out.Size()
	w.marks = slices.DeleteFunc(w.marks, func(m mark) bool { return m.end <= size })
	pending := w.lost
	for _, m := range w.marks {
		pending += uint64(m.events)
	}
	return pending
}

// Last appends the last line, for which room is reserved, and closes the file.
func (w *File) Last(line []byte) error {
	_, err := w.out.Append(line)
	if err != nil {
		err = fmt.Errorf("write trace file: %w", err)
	}
	return errors.Join(err, w.Close())
}

// Close writes the taken events and closes the file.
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

// room returns how many bytes may be written, or an error if there is no room for need bytes.
func (w *File) room(need int) (int, error) {
	left := int64(math.MaxInt64)
	if w.max > 0 {
		left = w.max - w.taken - w.spare
	}
	if left < int64(need) {
		return 0, errByteLimit
	}
	above, err := w.floor.Room(uint64(need), uint64(w.spare))
	if err != nil {
		return 0, err
	}
	// The free space of the disk still includes pending bytes.
	pending := uint64(w.out.Pending())
	above -= min(above, pending)
	switch {
	case above >= uint64(need):
		return int(min(uint64(left), above, math.MaxInt)), nil
	case pending == 0:
		return 0, w.floor.FullError(uint64(w.out.Size()))
	}
	if err := w.Flush(true); err != nil {
		return 0, err
	}
	return w.room(need)
}

var newline = []byte{'\n'}

// linesPerEvent returns how many lines each event has: all have the same number.
func linesPerEvent(lines []byte, events int) int {
	return max(1, bytes.Count(lines, newline)/max(1, events))
}

// eventLen is the length of the first event's lines.
func eventLen(lines []byte, perEvent int) int {
	at := 0
	for range perEvent {
		i := bytes.IndexByte(lines[at:], '\n')
		if i < 0 {
			return len(lines)
		}
		at += i + 1
	}
	return at
}

// wholeEvents returns the lines of the events that fit into room bytes.
func wholeEvents(lines []byte, room, perEvent int) []byte {
	if room >= len(lines) {
		return lines
	}
	lines = lines[:room]
	lines = lines[:bytes.LastIndexByte(lines, '\n')+1]
	for range bytes.Count(lines, newline) % perEvent {
		lines = lines[:bytes.LastIndexByte(lines[:len(lines)-1], '\n')+1]
	}
	return lines
}
