package trace

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"

	"github.com/sonde-operator/sonde/agents/disk"
)

// errByteLimit ends a trace whose file has no room for the next line.
var errByteLimit = errors.New("the file's limit is reached")

// File is where a trace's lines go: whole lines, within a limit and above the floor of the disk. Its methods, but Size,
// belong to one goroutine.
type File struct {
	f     *os.File
	floor disk.Floor
	size  atomic.Int64
	most  int64 // 0 is no limit
	spare int64 // for the last line
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
	w := &File{f: f, floor: c.Floor, most: c.MaxBytes, spare: c.Spare}
	if len(c.Header) > 0 {
		_, err = w.Write(c.Header, 1)
	}
	if err == nil {
		err = disk.Place(c.Path)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close(), disk.Discard(c.Path))
	}
	return w, nil
}

// Write appends the lines of so many events and returns how many of them are in the file: all, or as many as there is room
// for, and why.
func (w *File) Write(lines []byte, events int) (written int, err error) {
	if room, err := w.room(eventLen(lines, 1)); err == nil && room >= len(lines) {
		return w.append(lines, events) // without a look at each
	}
	each := linesOfEach(lines, events)
	for len(lines) > 0 {
		room, err := w.room(eventLen(lines, each))
		if err != nil {
			return written, err
		}
		part := wholeEvents(lines, room, each)
		n, err := w.append(part, bytes.Count(part, newline)/each)
		written += n
		if err != nil {
			return written, err
		}
		lines = lines[len(part):]
	}
	return written, nil
}

// Last appends the last line, for which there is spare room, and closes the file.
func (w *File) Last(line []byte) error {
	_, err := w.append(line, 1)
	return errors.Join(err, w.Close())
}

// Close lets go of the file, which stays.
func (w *File) Close() error {
	if w.f == nil {
		return nil
	}
	err := w.f.Close()
	w.f = nil
	return err
}

// Size of the file in bytes.
func (w *File) Size() int64 { return w.size.Load() }

// room is how many bytes of lines may be written, or why not even the next one may.
func (w *File) room(need int) (int, error) {
	left := int64(math.MaxInt64)
	if w.most > 0 {
		left = w.most - w.Size() - w.spare
	}
	if left < int64(need) {
		return 0, errByteLimit
	}
	above, err := w.floor.Room(uint64(need), uint64(w.spare))
	if err != nil {
		return 0, err
	}
	if above < uint64(need) {
		return 0, w.floor.Below()
	}
	return int(min(uint64(left), above, math.MaxInt)), nil
}

// append writes the lines of events. When the disk refuses, the file is cut back to whole events and to what leaves room
// for the last line.
func (w *File) append(lines []byte, events int) (written int, err error) {
	n, err := w.f.Write(lines)
	if err == nil {
		w.size.Add(int64(n))
		return events, nil
	}
	each := linesOfEach(lines, events)
	err = fmt.Errorf("write trace file: %w", err)
	kept := wholeEvents(lines, max(0, n-int(w.spare)), each)
	if terr := w.f.Truncate(w.Size() + int64(len(kept))); terr != nil {
		err = errors.Join(err, fmt.Errorf("cut trace file to whole lines: %w", terr))
	}
	w.size.Add(int64(len(kept)))
	return bytes.Count(kept, newline) / each, err
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
