// Package iterator reads the output of BPF iterators over the processes of a node and their files. Any process can make such an
// iterator slow, with millions of descriptors.
package iterator

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ErrSlow says that an iterator was not at its end in time. What it had written until then was read.
var ErrSlow = errors.New("the node's processes have too many open files to look at all of them")

// Read runs an iterator program and reads its output. It returns what read has returned, and ErrSlow if the iterator has not
// ended by the deadline. It may take longer by one call of the kernel, which looks at up to a million files.
func Read[T any](program *ebpf.Program, deadline time.Time, read func(io.Reader) (T, error)) (none T, err error) {
	l, err := link.AttachIter(link.IterOptions{Program: program})
	if err != nil {
		return none, fmt.Errorf("attach the iterator: %w", err)
	}
	defer l.Close()
	r, err := l.Open()
	if err != nil {
		return none, fmt.Errorf("open the iterator: %w", err)
	}
	defer r.Close()
	return read(bufio.NewReaderSize(&patient{r, deadline}, 64<<10))
}

// patient reads on where the kernel has interrupted an iterator.
type patient struct {
	io.Reader
	deadline time.Time
}

// Read implements io.Reader. The kernel returns EAGAIN when it has looked at a million objects and the program has written
// nothing (MAX_ITER_OBJECTS in kernel/bpf/bpf_iter.c). The next call continues there.
func (p *patient) Read(b []byte) (int, error) {
	for time.Now().Before(p.deadline) {
		if n, err := p.Reader.Read(b); n > 0 || !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
	return 0, ErrSlow
}
