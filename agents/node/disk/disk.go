// Package disk writes results to a node's file system, past the page cache where that lets it (Appender), and keeps the free
// space that results may not take: the floor. What writes results asks it before each write.
package disk

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Slack is what a writer leaves above the floor: for what it writes beside its data (the last block of a file that is
// not full, the file system's own notes, the account), and for what as many as 30 others write to the same disk at the
// same moment, having looked as it did.
const Slack = 2 << 20

// piece is the largest write when the floor is near, unless what cannot be divided is larger.
const piece = 64 << 10

// SpaceFunc tells how many bytes the file system of a folder has, and how many are free for this process.
type SpaceFunc func(dir string) (total, free uint64, err error)

// Space asks the kernel: what is written and not yet on the disk counts as used.
func Space(dir string) (total, free uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("ask for the free space of %s: %w", dir, err)
	}
	return st.Blocks * uint64(st.Bsize), st.Bavail * uint64(st.Bsize), nil
}

// Floor is what is to stay free.
type Floor struct {
	// Dir is a folder on the file system.
	Dir string
	// Keep is how many of total bytes are to stay free; nil keeps nothing.
	Keep func(total uint64) uint64
	// Space is asked; nil asks the kernel.
	Space SpaceFunc
}

func (f *Floor) space() (total, free uint64, err error) {
	if f.Space == nil {
		return Space(f.Dir)
	}
	return f.Space(f.Dir)
}

// Room is how many bytes the next write may have, of which the first need cannot be divided, when spare bytes more are
// to be written at the end: nothing that would go below the floor, and the less, the nearer that is. Others write to the
// same disk between a look and the write, so that what was taken and waits to be written (Appender.Pending) is part of it.
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

// Below is the error of a write that there is no room for.
func (f *Floor) Below() error {
	total, free, err := f.space()
	if err != nil {
		return err
	}
	return &floorError{total: total, free: free, floor: f.Keep(total)}
}

// floorError says that the disk has no more than it is to keep.
type floorError struct {
	total, free, floor uint64
}

func (e *floorError) Error() string {
	return fmt.Sprintf("the node's disk has %s of %s free, and captures leave %s (--disk-floor of the manager): free space there, or capture less (maxBytes, filter, snapLength)",
		bytesText(e.free), bytesText(e.total), bytesText(e.floor))
}

// bytesText writes a number of bytes as people read it.
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

// IsFull tells whether err means that a file cannot grow: no space above the floor, none at all, no quota, or a file
// size limit.
func IsFull(err error) bool {
	var floor *floorError
	return errors.As(err, &floor) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}
