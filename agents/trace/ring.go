package trace

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// cpuRing is the ring that one CPU writes and nobody else (struct ring of bpf/trace.bpf.c).
type cpuRing struct {
	mem    []byte // the whole map's, in the first ring only
	head   *atomic.Uint64
	lost   *atomic.Uint64
	compat *atomic.Uint64
	tail   *atomic.Uint64
	top    []byte // all before data
	data   []byte // with the slack behind its end
	size   uint64
	pos    uint64 // all that was read
	seen   uint64 // head as it was last looked at
}

const (
	headOffset   = unsafe.Offsetof(ringLayout{}.head)
	lostOffset   = unsafe.Offsetof(ringLayout{}.lost)
	compatOffset = unsafe.Offsetof(ringLayout{}.compat)
	tailOffset   = unsafe.Offsetof(ringLayout{}.tail)
)

// ringLayout is how a ring begins.
type ringLayout struct {
	head, lost, compat uint64
	_                  [5]uint64
	tail               uint64
}

// mapRings maps the array of rings: one after the other, each of a whole number of pages.
func mapRings(m *ebpf.Map, cpus, size int) ([]*cpuRing, error) {
	each := ringHead + size + ringSlack
	mem, err := unix.Mmap(m.FD(), 0, cpus*each, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map rings: %w", err)
	}
	rings := make([]*cpuRing, cpus)
	for i := range rings {
		one := mem[i*each : (i+1)*each]
		at := func(offset uintptr) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&one[offset])) }
		rings[i] = &cpuRing{
			head: at(headOffset), lost: at(lostOffset), compat: at(compatOffset), tail: at(tailOffset),
			top: one[:ringHead], data: one[ringHead:], size: uint64(size),
		}
	}
	rings[0].mem = mem
	return rings, nil
}

// lostOf is how many records of a call, by its number, found no room; of page faults it is lostFault.
func (r *cpuRing) lostOf(call uint32) uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&r.top[lostAt+8*int(call)])).Load()
}

func (r *cpuRing) close() error {
	if r.mem == nil {
		return nil
	}
	err := unix.Munmap(r.mem)
	r.mem = nil
	if err != nil {
		return fmt.Errorf("unmap rings: %w", os.NewSyscallError("munmap", err))
	}
	return nil
}

// next returns the record at the ring's place; false if there is none yet. What it points to is the ring's until free. The
// CPU that writes is asked for its place only when all is read that it had written the last time: each question takes the
// place's cache line from it, and has it wait for that at its next call.
func (r *cpuRing) next(e *event) (bool, error) {
	if r.pos == r.seen {
		if r.seen = r.head.Load(); r.pos == r.seen {
			return false, nil
		}
	}
	if !e.parse(r.data[r.pos&(r.size-1):]) {
		return false, errNotWhole
	}
	return true, nil
}

// run returns the records from the ring's place on that lie in one piece and came by a time, and how many they are: at most
// so many, and no more than make up a lineBuffer, so that they are still in the processor's cache when they are copied. One
// that cannot be read ends them, and is next's to tell of.
func (r *cpuRing) run(until, most uint64) (records []byte, n uint64) {
	at := r.pos & (r.size - 1)
	all, left := r.data[at:], min(r.seen-r.pos, r.size-at, lineBuffer)
	size := uint64(0)
	for ; n < most && size < left; n++ {
		head := headOf(all[size:])
		if head == nil || head.Time > until {
			break
		}
		size += uint64(head.Size)
	}
	return all[:size], n
}

// skip goes on behind the records that next or run returned, by their size.
func (r *cpuRing) skip(size uint64) {
	if at := r.pos & (r.size - 1); at+size >= r.size {
		size = r.size - at // the next one is at the front
	}
	r.pos += size
}

// free gives all that was skipped back to the CPU.
func (r *cpuRing) free() { r.tail.Store(r.pos) }

// freeMuch does so where it is much: each time takes the place's cache line from the CPU.
func (r *cpuRing) freeMuch() {
	if r.pos-r.tail.Load() > r.size/16 {
		r.free()
	}
}

// fill is how full the ring is, of 1.
func (r *cpuRing) fill() float64 { return float64(r.head.Load()-r.tail.Load()) / float64(r.size) }
