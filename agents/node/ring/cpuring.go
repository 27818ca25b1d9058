// Package cpuring reads the rings of bpf/headers/ring.h: one for each CPU, which writes it and nobody else, in an array map
// that is mapped into memory. Records lie one behind the other. What they are is the programs' and their reader's to know.
package ring

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const (
	// headLen is RING_HEAD, lostAt LOST_AT.
	headLen = 8192
	lostAt  = 4096
	// Kinds is how many kinds of lost records are counted apart (LOST_KINDS).
	Kinds = (headLen - lostAt) / 8
	page  = 4096
)

// layout is how a ring begins (struct ring).
type layout struct {
	head, lost, own, busy uint64
	_                     [4]uint64
	tail, asked, patience uint64
}

// Ring of one CPU. It has one reader, on one goroutine.
type Ring struct {
	mem             []byte // the whole map's, in the first ring only
	head, tail      *atomic.Uint64
	lost, own       *atomic.Uint64
	busy, asked     *atomic.Uint64
	patience        *atomic.Uint64
	top             []byte // all before data
	data            []byte // with the slack behind its end
	size, pos, seen uint64 // seen is head as it was last looked at
}

// Size is how large each CPU's ring is where all together are to have total bytes: a power of two, and at least the least.
func Size(total, cpus, least int) int {
	size := least
	for size*2 <= total/max(cpus, 1) {
		size *= 2
	}
	return size
}

// slackLen is what lies behind a ring's end for the end of a record of so many bytes. Whole pages.
func slackLen(longest int) int { return (longest + page - 1) &^ (page - 1) }

// Shape sets how many rings a map has, each of size bytes for records of at most longest bytes. The program's constant
// ring_mask is size - 1. Before Linux 6.0 a map with rings of 4 MiB or more cannot be made (unix.E2BIG).
func Shape(m *ebpf.MapSpec, cpus, size, longest int) {
	m.MaxEntries, m.ValueSize = uint32(cpus), uint32(headLen+size+slackLen(longest))
}

// Map maps the rings of a map that has the shape.
func Map(m *ebpf.Map, cpus, size, longest int) ([]*Ring, error) {
	each := headLen + size + slackLen(longest)
	mem, err := unix.Mmap(m.FD(), 0, cpus*each, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map rings: %w", os.NewSyscallError("mmap", err))
	}
	rings := make([]*Ring, cpus)
	for i := range rings {
		rings[i] = newRing(mem[i*each:(i+1)*each], size)
	}
	rings[0].mem = mem
	return rings, nil
}

// newRing is the ring of size bytes in mem.
func newRing(mem []byte, size int) *Ring {
	l := (*layout)(unsafe.Pointer(&mem[0]))
	at := func(n *uint64) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(n)) }
	return &Ring{
		head: at(&l.head), lost: at(&l.lost), own: at(&l.own), busy: at(&l.busy), tail: at(&l.tail), asked: at(&l.asked), patience: at(&l.patience),
		top: mem[:headLen], data: mem[headLen:], size: uint64(size),
	}
}

// Unmap lets go of the memory of rings that Map returned.
func Unmap(rings []*Ring) error {
	if len(rings) == 0 || rings[0].mem == nil {
		return nil
	}
	mem := rings[0].mem
	rings[0].mem = nil
	if err := unix.Munmap(mem); err != nil {
		return fmt.Errorf("unmap rings: %w", os.NewSyscallError("munmap", err))
	}
	return nil
}

// Ready reports whether there is a record at the reader's place. The CPU that writes is asked for its own only when all
// is read that it had written the last time: each question takes the place's cache line from it, and has it wait for that
// at its next record.
func (r *Ring) Ready() bool { return r.pos != r.seen || r.look() }

func (r *Ring) look() bool {
	r.seen = r.head.Load()
	return r.pos != r.seen
}

// Rest is the memory from the reader's place on. A record begins there where the ring is Ready; further ones follow it in
// the first Left bytes. It is the reader's until Free.
func (r *Ring) Rest() []byte { return r.data[r.pos&(r.size-1):] }

// Left is in how many bytes from the reader's place on records begin that lie in one piece.
func (r *Ring) Left() uint64 { return min(r.seen-r.pos, r.size-r.pos&(r.size-1)) }

// Skip goes on behind records of so many bytes, which lie in one piece.
func (r *Ring) Skip(size uint64) {
	if at := r.pos & (r.size - 1); at+size >= r.size {
		size = r.size - at // the next one is at the front
	}
	r.pos += size
}

// Free gives all that was skipped back to the CPU.
func (r *Ring) Free() {
	if r.tail.Load() != r.pos { // a store takes the place's cache line from the CPU
		r.tail.Store(r.pos)
	}
}

// FreeMuch does so where it is much.
func (r *Ring) FreeMuch() {
	if r.pos-r.tail.Load() > r.size/16 {
		r.Free()
	}
}

// Fill is how full the ring is, of 1.
func (r *Ring) Fill() float64 { return float64(r.head.Load()-r.tail.Load()) / float64(r.size) }

// Lost is how many records found no room.
func (r *Ring) Lost() uint64 { return r.lost.Load() }

// Own is the program's own counter.
func (r *Ring) Own() uint64 { return r.own.Load() }

// LostOf is how many records of one kind found no room. kind is less than Kinds.
func (r *Ring) LostOf(kind uint32) uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&r.top[lostAt+8*int(kind)])).Load()
}
