// Package ring reads the rings of bpf/headers/ring.h: one for each CPU, its only writer, in an array map that is mapped into
// memory. Records follow each other; their format is up to the programs and their reader.
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
	// Kinds is how many kinds of lost records are counted separately (LOST_KINDS).
	Kinds = (headLen - lostAt) / 8
	page  = 4096
)

// layout is the head of a ring (struct ring).
type layout struct {
	head, lost, counter, busy uint64
	_                         [4]uint64
	tail, asked, threshold    uint64
}

// Ring of one CPU. It has one reader, on one goroutine.
type Ring struct {
	mem             []byte // the whole map; set in the first ring only
	head, tail      *atomic.Uint64
	lost, counter   *atomic.Uint64
	busy, asked     *atomic.Uint64
	threshold       *atomic.Uint64
	top             []byte // everything before data
	data            []byte // with the slack after its end
	size, pos, last uint64 // pos is the reader's position, last is head as it was read last
}

// Size returns the size of each CPU's ring in bytes: a power of two, at least least, and otherwise at most total for
// all together.
func Size(total, cpus, least int) int {
	size := least
	for size*2 <= total/max(cpus, 1) {
		size *= 2
	}
	return size
}

// slackLen is the length of the memory after a ring's end, for the end of a record of longest bytes. It is whole pages.
func slackLen(longest int) int { return (longest + page - 1) &^ (page - 1) }

// Shape sets how many rings a map has, each of size bytes for records of at most longest bytes. The program's constant
// ring_mask must be size - 1. Before Linux 6.0 a map with rings of 4 MiB or more cannot be created (unix.E2BIG).
func Shape(m *ebpf.MapSpec, cpus, size, longest int) {
	m.MaxEntries, m.ValueSize = uint32(cpus), uint32(headLen+size+slackLen(longest))
}

// Map maps the rings of a map with this shape.
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

// newRing returns the ring of size bytes in mem.
func newRing(mem []byte, size int) *Ring {
	l := (*layout)(unsafe.Pointer(&mem[0]))
	at := func(n *uint64) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(n)) }
	return &Ring{
		head: at(&l.head), lost: at(&l.lost), counter: at(&l.counter), busy: at(&l.busy), tail: at(&l.tail), asked: at(&l.asked), threshold: at(&l.threshold),
		top: mem[:headLen], data: mem[headLen:], size: uint64(size),
	}
}

// Unmap releases the memory of rings that Map returned.
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

// Ahead returns another reader of the records from the reader's position on. It must not free any.
func (r *Ring) Ahead() *Ring {
	ahead := *r
	return &ahead
}

// Ready reports whether there is a record at the reader's position. It reads the writer's position only when all known
// records are read: each load takes that cache line from the writing CPU, which waits for it at its next record.
func (r *Ring) Ready() bool { return r.pos != r.last || r.update() }

func (r *Ring) update() bool {
	r.last = r.head.Load()
	return r.pos != r.last
}

// Rest is the memory from the reader's position on. If the ring is Ready, a record begins there, and others begin
// within the next Left bytes. The writer does not change it before Free.
func (r *Ring) Rest() []byte { return r.data[r.pos&(r.size-1):] }

// Left returns how many bytes of records follow the reader's position, up to the end of the ring's memory.
func (r *Ring) Left() uint64 { return min(r.last-r.pos, r.size-r.pos&(r.size-1)) }

// Skip moves the reader's position past records of size bytes, which are in one piece of memory.
func (r *Ring) Skip(size uint64) {
	if at := r.pos & (r.size - 1); at+size >= r.size {
		size = r.size - at // the next one is at the front
	}
	r.pos += size
}

// Free gives the skipped memory back to the writer.
func (r *Ring) Free() {
	if r.tail.Load() != r.pos { // a store takes the cache line from the writer
		r.tail.Store(r.pos)
	}
}

// FreeLarge frees the skipped memory if it is a large part of the ring.
func (r *Ring) FreeLarge() {
	if r.pos-r.tail.Load() > r.size/16 {
		r.Free()
	}
}

// Fill returns how full the ring is, from 0 to 1.
func (r *Ring) Fill() float64 { return float64(r.head.Load()-r.tail.Load()) / float64(r.size) }

// Lost returns how many records found no room.
func (r *Ring) Lost() uint64 { return r.lost.Load() }

// Counter returns a counter whose meaning the program defines.
func (r *Ring) Counter() uint64 { return r.counter.Load() }

// LostOf returns how many records of one kind, less than Kinds, found no room.
func (r *Ring) LostOf(kind uint32) uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&r.top[lostAt+8*int(kind)])).Load()
}
