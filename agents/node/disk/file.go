package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Create makes a file for a result, which has a hidden name until Place gives it its own: nobody reads a result that has
// no beginning yet. Appending makes the kernel set the offset, so that nothing has to seek after a truncation.
func Create(path string, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(hidden(path), os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, mode)
	if err != nil {
		return nil, fmt.Errorf("create result: %w", taken(err))
	}
	if err := f.Chmod(mode); err != nil { // whatever the umask is: the keeper has to read it
		return nil, errors.Join(fmt.Errorf("set mode of result: %w", err), f.Close(), Discard(path))
	}
	return f, nil
}

// Place gives a file that Create made its name. It never replaces another.
func Place(path string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, hidden(path), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("create result: %w", taken(err))
	}
	return nil
}

// Discard removes a file that Create made and Place did not place.
func Discard(path string) error { return os.Remove(hidden(path)) }

func hidden(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
}

// taken says what to do about a name that is.
func taken(err error) error {
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: choose another base name, results are never overwritten", err)
	}
	return err
}
