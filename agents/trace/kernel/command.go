package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// Bounds of bpf/headers/trace_filter.h.
const (
	maxParts  = 32 // parts of a path
	nameWords = 32 // words of a name, 8 bytes each
	// maxComm is the longest name that a thread can have.
	maxComm = 15
	// maxCommand is the longest name or path without its terminating zero.
	maxCommand = nameWords*8 - 1
)

// Command selects the processes to record.
type Command struct {
	// Name is the process's name when its program started (comm), the name of its executable, or the executable's
	// absolute path.
	Name string
	// Children includes the descendants of such a process, whatever programs they run.
	Children bool
}

func (c *Command) isPath() bool { return strings.Contains(c.Name, "/") }

// Check refuses names that no process can have.
func (c *Command) Check() error {
	switch {
	case c.Name == "" || len(c.Name) > maxCommand || strings.ContainsRune(c.Name, 0):
		return fmt.Errorf("command has %d bytes: write a name or a path of 1 to %d, without a zero byte", len(c.Name), maxCommand)
	case c.isPath() && (!path.IsAbs(c.Name) || path.Clean(c.Name) != c.Name || c.Name == "/"):
		return fmt.Errorf("command %q is not a clean absolute path: write it as readlink /proc/PID/exe shows it", c.Name)
	case strings.Count(c.Name, "/") > maxParts:
		return fmt.Errorf("command %q lies in more than %d directories: name the executable without them", c.Name, maxParts-1)
	}
	return nil
}

// constants returns the BPF programs' constants for the command.
func (c *Command) constants() map[string]any {
	var parts [maxParts][nameWords]uint64
	var whole [nameWords]uint64
	var comm [2]uint64
	names := []string{c.Name}
	if c.isPath() {
		names = strings.Split(c.Name[1:], "/")
		slices.Reverse(names)
		words(whole[:], c.Name)
	} else if len(c.Name) <= maxComm {
		words(comm[:], c.Name)
	}
	for i, name := range names {
		words(parts[i][:], name)
	}
	return map[string]any{
		traceVarByCommand: true, traceVarWithChildren: c.Children,
		traceVarCommandParts: parts, traceVarCommandDepth: uint32(len(names)), traceVarCommandPath: whole, traceVarCommandComm: comm,
	}
}

// words writes a text into words as they lie in memory, padded with zeros.
func words(to []uint64, s string) {
	b := make([]byte, 8*len(to))
	copy(b, s)
	for i := range to {
		to[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
}

// maxPasses bounds markCommand: each pass finds at least one more generation of children.
const maxPasses = 1024

var errNeverMarked = errors.New("the Pod's processes fork too fast, or too deep, to find all children of the command: trace without children")

// markCommand marks the command's running processes. The attached programs mark processes that start or fork meanwhile.
// A pass that marks no process is the last one.
func (p *Program) markCommand() error {
	for range maxPasses {
		before, err := p.marked()
		if err != nil {
			return err
		}
		_, err = iterate(p.Objects.Programs[traceProgSondeMark], "the command's processes", tasksWithin, func(r io.Reader) (int64, error) {
			return io.Copy(io.Discard, r)
		})
		if err != nil {
			return err
		}
		if after, err := p.marked(); err != nil || after == before {
			return err
		}
	}
	return errNeverMarked
}

func (p *Program) marked() (n uint64, err error) {
	if err := p.Objects.Variables[traceVarMarked].Get(&n); err != nil {
		return 0, fmt.Errorf("count the command's processes: %w", err)
	}
	return n, nil
}

// Unmarked counts the command's threads for which the table of marks had no room: their events are missing.
func (p *Program) Unmarked() (n uint64) {
	if !p.marks || p.Objects.Variables[traceVarMarksLost].Get(&n) != nil {
		return 0
	}
	return n
}
