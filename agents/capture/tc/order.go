package tc

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	ebpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// tryName is the name of the program that shows whether programs can be attached.
const tryName = "sonde_try"

// captureNames are the names of all captures' programs. They let each packet pass.
var captureNames = []string{packetsProgSondeIn, packetsProgSondeOut, tryName}

// tcxLink is one of our programs at tcx. Programs before it may hide packets, and the kernel announces no changes of them.
type tcxLink struct {
	ebpflink.Link
	point ebpf.AttachType
	own   ebpf.ProgramID
	// As of the last check: how often the kernel has changed the programs there, and the other ones; true are captures'.
	revision uint64
	others   map[ebpf.ProgramID]bool
	first    bool
}

func newTCXLink(l ebpflink.Link, point ebpf.AttachType, program *ebpf.Program) (*tcxLink, error) {
	info, err := program.Info()
	if err != nil {
		return nil, fmt.Errorf("describe program: %w", err)
	}
	own, _ := info.ID() // each kernel with tcx has it
	return &tcxLink{Link: l, point: point, own: own}, nil
}

// check compares the programs with those of the last check. first: only programs of captures run before this one. explained: the list
// accounts for each change that the kernel has counted, so no other program has come and gone. It runs in the interface's network
// namespace.
func (l *tcxLink) check(index int) (first, explained bool, err error) {
	for range 20 {
		now, err := ebpflink.QueryPrograms(ebpflink.QueryOptions{Target: index, Attach: l.point})
		if errors.Is(err, unix.ENOSPC) {
			continue // one was attached meanwhile
		}
		if err != nil {
			return false, false, fmt.Errorf("list programs at tcx: %w", err)
		}
		if now.Revision == l.revision {
			return l.first, true, nil
		}
		others, first, err := l.read(now.Programs)
		if errors.Is(err, os.ErrNotExist) {
			continue // one has gone meanwhile
		}
		if err != nil {
			return false, false, err
		}
		explained = l.revision == 0 || now.Revision-l.revision <= between(l.others, others, changesOf(index))
		l.revision, l.others, l.first = now.Revision, others, first
		return first, explained, nil
	}
	return false, false, errors.New("the programs at tcx change too often")
}

// read returns the other programs of a list, and whether ours is the first but for those of captures.
func (l *tcxLink) read(programs []ebpflink.AttachedProgram) (others map[ebpf.ProgramID]bool, first bool, err error) {
	others = map[ebpf.ProgramID]bool{}
	found, hidden := false, false
	for _, p := range programs {
		if p.ID == l.own {
			found = true
			continue
		}
		capture, ok := l.others[p.ID]
		if !ok {
			if capture, err = isCapture(p.ID); err != nil {
				return nil, false, err
			}
		}
		others[p.ID] = capture
		hidden = hidden || !found && !capture
	}
	return others, found && !hidden, nil
}

// isCapture reports whether a program is a capture's.
func isCapture(id ebpf.ProgramID) (bool, error) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false, fmt.Errorf("open program: %w", err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return false, fmt.Errorf("describe program: %w", err)
	}
	return slices.Contains(captureNames, info.Name), nil
}

// changesOf is how many changes a capture makes at most when it begins: it attaches its own program. At loopback it attaches one before
// to try it, and detaches it after (Backend.tryAttach).
func changesOf(index int) uint64 {
	if index == loopbackIndex {
		return 3
	}
	return 1
}

// between returns how many changes of the programs two lists explain at most, if a capture that begins makes ofCapture. If the kernel
// counts more, a program has come and gone in between. A replacement of another program is one change, although one has come and one
// has gone.
func between(before, now map[ebpf.ProgramID]bool, ofCapture uint64) (n uint64) {
	var added, removed uint64
	for id, capture := range now {
		switch _, ok := before[id]; {
		case ok:
		case capture:
			n += ofCapture
		default:
			added++
		}
	}
	for id, capture := range before {
		switch _, ok := now[id]; {
		case ok:
		case capture:
			n++
		default:
			removed++
		}
	}
	return n + max(added, removed)
}
