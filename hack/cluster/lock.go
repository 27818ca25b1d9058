package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// takeLock lets only one command at a time change what the lock at path protects: the built binaries, or one cluster.
// It waits, and says so. Closing the file frees the lock, unless a child holds it too. The kernel frees the lock of a
// killed command.
func takeLock(path string, p *progress) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the cluster's cache directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		p.step("waiting for another cluster command to end (it holds %s)", f.Name())
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}
