package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A virtual machine may give free memory back to its host (free page reporting), which has to find it again when a file
// is written: three times the cost of a write, now and then, and none of any engine's doing. So what a run will need is
// touched right before it, and where the kernel says how soon it gives memory back, that is put off while bench runs.

// reporting is where some kernels have such settings, and what they are set to meanwhile.
const reporting = "/sys/module/page_reporting/parameters"

var putOff = map[string]string{
	"min_free_ms":     "60000",
	"max_waiting_mib": "30000",
}

// holdMemory puts free page reporting off and returns what sets it back. false says that there is nothing to set.
func holdMemory(dir string, settings map[string]string) (restore func() error, held bool, err error) {
	before := map[string]string{}
	restore = func() error {
		var errs []error
		for name, value := range before {
			errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(value), 0))
		}
		return errors.Join(errs...)
	}
	for name, value := range settings {
		old, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(value), 0)
		}
		if err != nil {
			return nil, false, errors.Join(fmt.Errorf("put off free page reporting: %w", err), restore())
		}
		before[name] = strings.TrimSpace(string(old))
	}
	return restore, len(before) > 0, nil
}

// warm makes the kernel have so many bytes of free memory at hand.
func warm(bytes int64) error {
	m, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("touch %d bytes of memory: %w", bytes, err)
	}
	return unix.Munmap(m)
}

// room is how much memory a run's file takes in the page cache, and some for the rest.
func (b *bench) room(s *scenario, f flood) int64 {
	const each, rest = 48, 128 << 20 // of a record's head; of all that is no file
	switch {
	case s.stream():
		return b.stream + rest
	case s.snap > 0:
		return int64(f.count)*int64(s.snap+each) + rest
	}
	return int64(f.count)*int64(f.size+each) + rest
}
