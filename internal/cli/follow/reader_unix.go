//go:build !windows

package follow

import (
	"errors"
	"io"
	"syscall"
)

// ReaderEnded reports whether a write failed because nothing reads the pipe any more.
func ReaderEnded(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
