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

// maxSockets bounds the sockets that are read, and so the probe's memory.
const maxSockets = 1 << 14

// Sockets returns the open sockets of the Pod's processes, each once, and makes the programs remember the owner of
// each. It needs Config.Network. It looks at the files of all processes of the node. If that takes longer than within, its error
// is iterator.ErrSlow, and the result has the sockets that were found in this time.
func (p *Program) Sockets(within time.Duration) ([]*Socket, error) {
	return iterate(p.Objects.Programs[traceProgSondeSockets], "sockets", within, readSockets)
}

// Unowned returns how many of the sockets have no room for their owner, so that the ends of their connections will not be
// recorded.
func Unowned(sockets []*Socket) (n uint64) {
	for _, s := range sockets {
		n += uint64(s.Unowned)
	}
	return n
}

func readSockets(r io.Reader) ([]*Socket, error) {
	var all []*Socket
	known := map[uint64]bool{}
	s := &Socket{}
	for {
		_, err := io.ReadFull(r, unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s)))
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, fmt.Errorf("read sockets: %w", err)
		}
		if !known[s.Inode] && len(all) < maxSockets {
			known[s.Inode] = true
			all = append(all, s)
			s = &Socket{}
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
