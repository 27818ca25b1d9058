package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A virtual machine may return free memory to its host (free page reporting). The host must then provide it again when
// a file is written, which costs up to twelve times as much and has nothing to do with the engine. Therefore the memory
// that a run needs is touched right before it. For files that are written in large pieces this is not enough, because
// they use other pages. If the kernel has the setting, reporting is therefore off while bench runs, and all free memory
// is touched once.

// reporting is the smallest size of free blocks that are reported, as a power of two in pages. No block has the size
// never.
const (
	reporting = "/sys/module/page_reporting/parameters/page_reporting_order"
	never     = "11"
)

// holdMemory turns free page reporting off, and returns a function that restores the setting. held is false if the
// kernel does not have the setting.
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

// WarmAll touches nearly all free memory twice, because the kernel allocates the pages in another order the second
// time.
func WarmAll() error {
	const stay, least = 1 << 30, 1 << 30
	free, err := freeMemory()
	if err != nil {
		return err
	}
	if free < stay+least {
		return nil
	}
	return errors.Join(Warm(free-stay), Warm(free-stay))
}

// freeMemory returns the free memory in bytes, without the page cache.
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

// Warm touches so many bytes of memory and frees them.
func Warm(bytes int64) error {
	m, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("touch %d bytes of memory: %w", bytes, err)
	}
	return unix.Munmap(m)
}
