package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// spare is a buffer that the next Appender has: a ring of files takes one after the other, and the kernel clears new memory.
var spare = make(chan []byte, 1)

// newBuffer is memory that begins with a page.
func newBuffer() ([]byte, error) {
	select {
	case b := <-spare:
		return b, nil
	default:
	}
	b, err := unix.Mmap(-1, 0, bufferLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("make a buffer for results: %w", os.NewSyscallError("mmap", err))
	}
	// A disk takes it in fewer parts. Without huge pages all is as well, and costs a little more.
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	return b, nil
}

// freeBuffer lets go of what newBuffer made.
func freeBuffer(b []byte) error {
	select {
	case spare <- b:
		return nil
	default:
		return os.NewSyscallError("munmap", unix.Munmap(b))
	}
}
