package follow

import (
	"errors"
	"io"

	"golang.org/x/sys/windows"
)

// ReaderEnded reports whether a write failed because nothing reads the pipe any more.
func ReaderEnded(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA) || errors.Is(err, io.ErrClosedPipe)
}
