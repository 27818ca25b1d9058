package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A virtual machine may give free memory back to its host (free page reporting), which has to find it again when a file
// is written: up to twelve times the cost of a write, now and then, and none of any engine's doing. So what a run will
// need is touched right before it. That alone does not do where files are written in large pieces: their pages are
// others than those just touched. So where the kernel has the setting, reporting is off while bench runs, and all free
// memory is touched once.

// reporting is the size from which free blocks are reported, as a power of two of pages; there is none of never's.
const (
	reporting = "/sys/module/page_reporting/parameters/page_reporting_order"
	never     = "11"
)

// holdMemory puts free page reporting off, by its setting, and returns what sets it back. false says that the kernel
// has no such setting.
func holdMemory(setting string) (restore func() error, held bool, err error) {
	before, err := os.ReadFile(setting)
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, false, nil
	}
	if err == nil {
		err = os.WriteFile(setting, []byte(never), 0)
	}
	if err != nil {
		return nil, false, fmt.Errorf("put off free page reporting: %w", err)
	}
	restore = func() error { return os.WriteFile(setting, bytes.TrimSpace(before), 0) }
	return restore, true, nil
}

// warmAll touches nearly all memory that is free, twice: what the first pass frees is handed out in another order.
func warmAll() error {
	const stay, least = 1 << 30, 1 << 30
	free, err := freeMemory()
	if err != nil {
		return err
	}
	if free < stay+least {
		return nil
	}
	return errors.Join(warm(free-stay), warm(free-stay))
}

// freeMemory returns how much memory is free, in bytes; what holds files is not counted.
func freeMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	var kib int64
	_, after, _ := strings.Cut(string(text), "MemFree:")
	if _, err := fmt.Sscan(after, &kib); err != nil {
		return 0, fmt.Errorf("read /proc/meminfo: %w", err)
	}
	return kib << 10, nil
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
