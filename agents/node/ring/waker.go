package ring

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Waker lets programs wake a reader (wake_reader): a BPF ring buffer whose descriptor becomes readable.
type Waker struct {
	fd                 int
	memory             [2][]byte // the reader's position, and the programs'
	consumer, producer *atomic.Uint64
}

// NewWaker returns a waker on a map of type BPF_MAP_TYPE_RINGBUF, which it does not close.
func NewWaker(m *ebpf.Map) (*Waker, error) {
	w := &Waker{fd: m.FD()}
	size := os.Getpagesize()
	for i, protection := range []int{unix.PROT_READ | unix.PROT_WRITE, unix.PROT_READ} {
		mem, err := unix.Mmap(w.fd, int64(i*size), size, protection, unix.MAP_SHARED)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("map waker: %w", os.NewSyscallError("mmap", err)), w.Close())
		}
		w.memory[i] = mem
	}
	w.consumer = (*atomic.Uint64)(unsafe.Pointer(&w.memory[0][0]))
	w.producer = (*atomic.Uint64)(unsafe.Pointer(&w.memory[1][0]))
	return w, nil
}

// FD is readable when programs have woken the reader.
func (w *Waker) FD() int { return w.fd }

// Clear makes FD unreadable until a program wakes the reader again.
func (w *Waker) Clear() {
	if end := w.producer.Load(); w.consumer.Load() != end {
		w.consumer.Store(end)
	}
}

// Close unmaps the memory of NewWaker. It may be called again.
func (w *Waker) Close() error {
	var errs []error
	for i, mem := range w.memory {
		if mem != nil {
			errs = append(errs, os.NewSyscallError("munmap", unix.Munmap(mem)))
			w.memory[i] = nil
		}
	}
	return errors.Join(errs...)
}

// wakeFill is how full a ring is, from 0 to 1, when its program wakes the reader (wake_reader). A quiet reader is woken
// by the first record.
const wakeFill = 1. / 8

// BeforeSleep makes programs wake the reader from now on, and returns how long the reader may sleep: interval, or
// QuietInterval if quiet. It returns zero if a program would have woken the reader already. A record that is published
// at this very moment may not wake the reader, which finds it after its sleep.
func BeforeSleep(rings []*Ring, interval time.Duration, quiet bool) time.Duration {
	if interval == 0 {
		return 0
	}
	most := wakeFill
	if quiet {
		interval, most = QuietInterval, 0
	}
	for _, r := range rings {
		set(r.threshold, uint64(most*float64(r.size)))
		set(r.asked, 0)
	}
	if Fullest(rings) > most {
		return 0
	}
	return interval
}

// set stores only a new value: programs read this cache line.
func set(word *atomic.Uint64, n uint64) {
	if word.Load() != n {
		word.Store(n)
	}
}
