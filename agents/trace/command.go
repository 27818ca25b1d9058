package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/cilium/ebpf/link"
)

// Bounds of bpf/headers/trace_filter.h.
const (
	maxParts  = 32 // of a path
	nameWords = 32 // of a name, 8 bytes each
	// maxComm is the longest name that a thread can have.
	maxComm = 15
	// maxCommand is the longest name or path, with room for a zero behind it.
	maxCommand = nameWords*8 - 1
)

// Command says which processes alone are recorded.
type Command struct {
	// Name is a name, which a process has itself (comm, as it was when its program started) or by its executable, or the
	// absolute path of an executable.
	Name string
	// Children records also what such a process starts, and what that starts, whatever they become.
	Children bool
}

func (c *Command) isPath() bool { return strings.Contains(c.Name, "/") }

// check refuses what no process can be called.
func (c *Command) check() error {
	switch {
	case c.Name == "" || len(c.Name) > maxCommand || strings.ContainsRune(c.Name, 0):
		return fmt.Errorf("command has %d bytes: write a name or a path of 1 to %d, without a zero byte", len(c.Name), maxCommand)
	case c.isPath() && (!path.IsAbs(c.Name) || path.Clean(c.Name) != c.Name || c.Name == "/"):
		return fmt.Errorf("command %q is no path from the root: write it as readlink /proc/PID/exe shows it", c.Name)
	case strings.Count(c.Name, "/") > maxParts:
		return fmt.Errorf("command %q lies in more than %d directories: name the executable without them", c.Name, maxParts-1)
	}
	return nil
}

// constants of the program.
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

// words puts a text into words as they lie in memory, with zeros behind it.
func words(to []uint64, s string) {
	b := make([]byte, 8*len(to))
	copy(b, s)
	for i := range to {
		to[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
}

// maxPasses of choose: each finds at least one generation of children more.
const maxPasses = 1024

var errNeverChosen = errors.New("the Pod's processes make others too fast, or too deep, for the command's children to be found: trace without children")

// choose marks the processes of the command that run already. What starts or forks meanwhile is marked by the programs
// that are attached: when a pass finds nothing more, there is nothing more.
func (p *program) choose() error {
	for range maxPasses {
		before, err := p.chosen()
		if err != nil {
			return err
		}
		if err := p.chooseOnce(); err != nil {
			return err
		}
		if after, err := p.chosen(); err != nil || after == before {
			return err
		}
	}
	return errNeverChosen
}

func (p *program) chooseOnce() error {
	l, err := link.AttachIter(link.IterOptions{Program: p.objects.Programs[traceProgSondeChoose]})
	if err != nil {
		return fmt.Errorf("attach the iterator of the command's processes: %w", explain(err))
	}
	defer l.Close()
	r, err := l.Open()
	if err != nil {
		return fmt.Errorf("look for the command's processes: %w", err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("look for the command's processes: %w", err)
	}
	return nil
}

func (p *program) chosen() (n uint64, err error) {
	if err := p.objects.Variables[traceVarChosen].Get(&n); err != nil {
		return 0, fmt.Errorf("count the command's processes: %w", err)
	}
	return n, nil
}

// unmarked counts threads of the command for which there was no room among the marks.
func (p *program) unmarked() (n uint64) {
	if !p.marks || p.objects.Variables[traceVarChosenLost].Get(&n) != nil {
		return 0
	}
	return n
}
