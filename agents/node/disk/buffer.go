package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// spare is a buffer for the next Appender: a ring of files uses one after the other, and the kernel must clear new memory.
var spare = make(chan []byte, 1)

// newBuffer returns memory that is aligned to a page.
func newBuffer() ([]byte, error) {
	select {
	case b := <-spare:
		return b, nil
	default:
	}
	b, err := unix.Mmap(-1, 0, bufferLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("allocate a buffer for results: %w", os.NewSyscallError("mmap", err))
	}
	// A disk write then has fewer segments. Without huge pages it works, too, and costs slightly more.
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	return b, nil
}

// freeBuffer frees memory of newBuffer.
func freeBuffer(b []byte) error {
	select {
	case spare <- b:
		return nil
	default:
		return os.NewSyscallError("munmap", unix.Munmap(b))
	}
}
