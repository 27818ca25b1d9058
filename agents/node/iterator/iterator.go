// Package iterator reads the output of BPF iterators over the processes of a node and their files. Any process can make such an
// iterator slow, with millions of descriptors. It can also stop it: an iterator holds each file for a moment, and if the process
// closes the file then, the kernel releases it in the reader. That can wait for a peer or a server for ever.
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

// errStuck is ErrSlow after a call of the kernel that has not ended.
var errStuck = fmt.Errorf("%w: the kernel still waits for one of them", ErrSlow)

// callTime is how long after the deadline a call of the kernel may last that began before. It looks at up to a million files.
const callTime = 2 * time.Second

// Read runs an iterator program and reads its output. It returns what read has returned, and ErrSlow if the iterator has not
// ended by the deadline. It may take longer by callTime.
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
	return read(bufio.NewReaderSize(&patient{r, deadline, callTime}, 64<<10))
}

// patient reads on where the kernel has interrupted an iterator. It does not wait for a call that never ends.
type patient struct {
	io.Reader
	deadline time.Time
	callTime time.Duration
}

// Read implements io.Reader. The kernel returns EAGAIN when it has looked at a million objects and the program has written
// nothing (MAX_ITER_OBJECTS in kernel/bpf/bpf_iter.c). The next call continues there.
func (p *patient) Read(b []byte) (int, error) {
	for time.Now().Before(p.deadline) {
		if n, err := p.call(b); n > 0 || !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
	return 0, ErrSlow
}

// call makes one call of the kernel. One that does not end keeps its thread and its memory.
func (p *patient) call(b []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	read, own := make(chan result, 1), make([]byte, len(b))
	go func() {
		n, err := p.Reader.Read(own)
		read <- result{n, err}
	}()
	timer := time.NewTimer(time.Until(p.deadline) + p.callTime)
	defer timer.Stop()
	select {
	case r := <-read:
		return copy(b, own[:r.n]), r.err
	case <-timer.C:
		return 0, errStuck
	}
}
