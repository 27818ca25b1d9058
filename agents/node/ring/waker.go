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

// Waker is what programs wake a reader by (ask_reader): a BPF ring buffer whose descriptor can be read when they have.
type Waker struct {
	fd                 int
	memory             [2][]byte // of the reader's place, and the programs'
	consumer, producer *atomic.Uint64
}

// NewWaker is on a map of type BPF_MAP_TYPE_RINGBUF, which it does not close.
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

// FD can be read when programs have asked the reader to come.
func (w *Waker) FD() int { return w.fd }

// Clear takes note of all that has been asked.
func (w *Waker) Clear() {
	if place := w.producer.Load(); w.consumer.Load() != place {
		w.consumer.Store(place)
	}
}

// Close lets go of what NewWaker took. It may be called again.
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

// woken is how full a ring is, of 1, whose program asks its reader to come (ask_reader); in quiet it asks with the first record.
const woken = 1. / 8

// Doze is called before a reader sleeps, and returns for how long it may: programs ask it to come from now on. Where
// meanwhile so much has come that one would have asked, it is not to sleep. In quiet it sleeps for longer than the pause. A
// record that is published at this very moment may ask nobody: the reader finds it after its sleep.
func Doze(rings []*Ring, pause time.Duration, quiet bool) time.Duration {
	if pause == 0 {
		return 0
	}
	most := woken
	if quiet {
		pause, most = Quiet, 0
	}
	for _, r := range rings {
		set(r.patience, uint64(most*float64(r.size)))
		set(r.asked, 0)
	}
	if Fullest(rings) > most {
		return 0
	}
	return pause
}

// set leaves a line of memory alone that need not change: programs read it.
func set(word *atomic.Uint64, n uint64) {
	if word.Load() != n {
		word.Store(n)
	}
}
