package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Create creates a file for a result. It has a hidden name until Place renames it, so that no reader finds a result without
// its header. With O_APPEND the kernel sets the offset, so that no seek is needed after a truncation.
func Create(path string, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(hidden(path), os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, mode)
	if err != nil {
		return nil, fmt.Errorf("create result: %w", explainExists(err))
	}
	if err := f.Chmod(mode); err != nil { // despite the umask: the keeper must be able to read it
		return nil, errors.Join(fmt.Errorf("set mode of result: %w", err), f.Close(), Discard(path))
	}
	return f, nil
}

// Place gives a file of Create its name. It never replaces another file.
func Place(path string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, hidden(path), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("create result: %w", explainExists(err))
	}
	return nil
}

// Discard removes a file of Create that Place has not renamed.
func Discard(path string) error { return os.Remove(hidden(path)) }

func hidden(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
}

// explainExists adds a remedy to the error about a name in use.
func explainExists(err error) error {
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: choose another base name, results are never overwritten", err)
	}
	return err
}
