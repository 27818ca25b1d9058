package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// maxSockets bounds the sockets that are read, and so the probe's memory.
const maxSockets = 1 << 14

// Sockets returns the open sockets of the Pod's processes, each once, and makes the programs remember the owner of
// each. It needs Config.Network.
func (p *Program) Sockets() ([]*Socket, error) {
	return iterate(p.Objects.Programs[traceProgSondeSockets], "sockets", readSockets)
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
	for {
		s := &Socket{}
		_, err := io.ReadFull(r, unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s)))
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read sockets: %w", err)
		}
		if !known[s.Inode] && len(all) < maxSockets {
			known[s.Inode] = true
			all = append(all, s)
		}
	}
}

// iterate runs an iterator program and reads its output, which errors call name.
func iterate[T any](program *ebpf.Program, name string, read func(io.Reader) (T, error)) (none T, err error) {
	l, err := link.AttachIter(link.IterOptions{Program: program})
	if err != nil {
		return none, fmt.Errorf("attach the iterator of %s: %w", name, explain(err))
	}
	defer l.Close()
	r, err := l.Open()
	if err != nil {
		return none, fmt.Errorf("read %s: %w", name, err)
	}
	defer r.Close()
	return read(bufio.NewReaderSize(r, 64<<10))
}
