//go:build !windows

package follow

import (
	"errors"
	"io"
	"syscall"
)

// readerEnded reports whether a write failed because nothing reads the pipe any more.
func readerEnded(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
