package kernel

import (
	"errors"
	"fmt"
	"io"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/sonde-operator/sonde/agents/node/iterator"
)

// maxSockets bounds the sockets that are kept, and so the probe's memory.
const maxSockets = 1 << 14

// Sockets are the open sockets of the Pod's processes.
type Sockets struct {
	// All has each socket once, and at most 16,384.
	All []*Socket
	// More says that there are sockets beyond these.
	More bool
	// Unowned is how many have no room for their owner, so that the ends of their connections will not be recorded. One more
	// stands for those that are not in All.
	Unowned uint64
}

// Sockets returns the open sockets that keep selects, and makes the programs remember the owner of each. It needs
// Config.Network. It looks at the files of all processes of the node. If that takes longer than within, its error is
// iterator.ErrSlow, and the result has the sockets that were found in this time.
func (p *Program) Sockets(within time.Duration, keep func(*Socket) bool) (Sockets, error) {
	return iterate(p.Objects.Programs[traceProgSondeSockets], "sockets", within, func(r io.Reader) (Sockets, error) {
		return readSockets(r, keep)
	})
}

// readSockets reads to the end also when it keeps no more: the program finds the owners while it is read.
func readSockets(r io.Reader, keep func(*Socket) bool) (Sockets, error) {
	var found Sockets
	known := map[uint64]bool{}
	unownedBeyond := uint64(0)
	s := &Socket{}
	for {
		_, err := io.ReadFull(r, unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s)))
		if err != nil {
			found.Unowned += unownedBeyond
		}
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("read sockets: %w", err)
		}
		switch {
		case known[s.Inode] || !keep(s):
		case len(found.All) < maxSockets:
			known[s.Inode] = true
			found.All = append(found.All, s)
			found.Unowned += uint64(s.Unowned)
			s = &Socket{}
		default:
			found.More = true
			unownedBeyond = max(unownedBeyond, uint64(s.Unowned))
		}
	}
}

// tasksWithin bounds iterators over the node's processes, of which a node has far fewer than open files.
const tasksWithin = 30 * time.Second

// iterate runs an iterator program and reads its output, which errors call name.
func iterate[T any](program *ebpf.Program, name string, within time.Duration, read func(io.Reader) (T, error)) (T, error) {
	all, err := iterator.Read(program, time.Now().Add(within), read)
	if err != nil {
		err = fmt.Errorf("iterate over %s: %w", name, explain(err))
	}
	return all, err
}
