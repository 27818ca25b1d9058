package pcapfilter

import (
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// mappedMemory is an instance's memory in a mapping of its own, and not on the Go heap. The kernel gets the memory back as
// soon as the compilation has ended, without a garbage collection.
type mappedMemory struct {
	bytes  []byte
	mapped bool
}

// allocateMemory reserves the largest size at once. The kernel provides pages when they are touched. If the process may not
// map memory, allocateMemory uses the heap.
func allocateMemory(_, largest uint64) experimental.LinearMemory {
	bytes, err := unix.Mmap(-1, 0, int(largest), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return &mappedMemory{bytes: make([]byte, largest)}
	}
	return &mappedMemory{bytes: bytes, mapped: true}
}

// Reallocate implements experimental.LinearMemory. It never moves the memory.
func (m *mappedMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.bytes)) {
		return nil
	}
	return m.bytes[:size:size]
}

// Free implements experimental.LinearMemory.
func (m *mappedMemory) Free() {
	if m.mapped {
		// munmap of one's own mapping fails only for arguments that are wrong.
		_ = unix.Munmap(m.bytes)
	}
	m.bytes = nil
}
