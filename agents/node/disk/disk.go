// Package disk writes results to a node's file system, past the page cache where that is possible (Appender). It keeps
// a floor of free space that results must not use (Floor). A writer of results asks the floor before each write.
package disk

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Slack is how many bytes a writer leaves free above the floor. They are for a partly filled last block, the file
// system's metadata, the account, and up to 30 other writers that checked the same disk at the same moment.
const Slack = 2 << 20

// piece is the largest write when the floor is near, unless the first indivisible part is larger.
const piece = 64 << 10

// SpaceFunc returns how many bytes the file system of a folder has, and how many are free for this process.
type SpaceFunc func(dir string) (total, free uint64, err error)

// Space asks the kernel. Bytes that are written and not yet on the disk count as used.
func Space(dir string) (total, free uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("read the free space of %s: %w", dir, err)
	}
	return st.Blocks * uint64(st.Bsize), st.Bavail * uint64(st.Bsize), nil
}

// Floor is the free space to keep.
type Floor struct {
	// Dir is a folder on the file system.
	Dir string
	// Keep returns how many of total bytes to keep free; nil keeps nothing.
	Keep func(total uint64) uint64
	// Space returns the free space; nil asks the kernel.
	Space SpaceFunc
}

func (f *Floor) space() (total, free uint64, err error) {
	if f.Space == nil {
		return Space(f.Dir)
	}
	return f.Space(f.Dir)
}

// Room returns how many bytes the next write may have. Its first need bytes are indivisible, and spare bytes must still
// fit after it. It never goes below the floor, and it shrinks near the floor, because others write to the same disk
// between the check and the write. The caller subtracts pending bytes (Appender.Pending).
func (f *Floor) Room(need, spare uint64) (uint64, error) {
	if f.Keep == nil {
		return math.MaxUint64, nil
	}
	total, free, err := f.space()
	if err != nil {
		return 0, err
	}
	if total == 0 {
		return math.MaxUint64, nil // a file system without a size, as a tmpfs may be
	}
	keep := f.Keep(total) + Slack + spare
	if free <= keep {
		return 0, nil
	}
	above := free - keep
	return min(above, max(above/32, piece, need)), nil
}

// FullError is the error of a write that has no room; IsFull reports true for it. written is how many bytes of the free
// space the writer has used itself: if the disk were full without them, the error does not advise to write less.
func (f *Floor) FullError(written uint64) error {
	total, free, err := f.space()
	if err != nil {
		return err
	}
	keep := f.Keep(total)
	return &floorError{total: total, free: free, floor: keep, lessHelps: free+written > keep+Slack}
}

// floorError says that the free space is at the floor.
type floorError struct {
	total, free, floor uint64
	lessHelps          bool
}

func (e *floorError) Error() string {
	advice := "ask a cluster admin for a lower --disk-floor"
	if e.lessHelps {
		advice = "capture less (maxBytes, filter, snapLength)"
	}
	return fmt.Sprintf("the node's disk has %s of %s free, and captures leave %s (--disk-floor of the manager): free space there, or %s",
		bytesText(e.free), bytesText(e.total), bytesText(e.floor), advice)
}

// bytesText formats a number of bytes for people.
func bytesText(n uint64) string {
	v, unit := float64(n), "bytes"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, next
	}
	if unit == "bytes" {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

// IsFull reports whether err means that a file cannot grow: no space above the floor, none at all, no quota, or a file
// size limit.
func IsFull(err error) bool {
	var floor *floorError
	return errors.As(err, &floor) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}
