package capture

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Rotate keeps the newest packets in a ring of files. The oldest is removed before the next is begun, so that there
// are never more than Files, nor more than Files times MaxBytes bytes.
type Rotate struct {
	// MaxBytes of one file, from MinRotateBytes.
	MaxBytes int64
	// Files at a time, from 2.
	Files int
}

// MinRotateBytes is the least size of a ring's files: their descriptions have to leave room for packets.
const MinRotateBytes = 65536

// limit is what bounds the next write.
type limit int

const (
	limitFile limit = iota
	limitDisk
)

// floorSlack is what a capture leaves above the floor: for what it writes beside packets (the last block of a file that
// is not full, the file system's own notes, the statistics, the account), and for what as many as 30 others write to the
// same disk at the same moment, having looked as it did.
const floorSlack = 2 << 20

// diskPiece is the largest write of packets when the floor is near, unless one packet is larger.
const diskPiece = 64 << 10

// spaceFunc tells how many bytes the file system of a folder has, and how many are free for this process.
type spaceFunc func(dir string) (total, free uint64, err error)

// freeSpace asks the kernel: what is written and not yet on the disk counts as used.
func freeSpace(dir string) (total, free uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("ask for the free space of %s: %w", dir, err)
	}
	return st.Blocks * uint64(st.Bsize), st.Bavail * uint64(st.Bsize), nil
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

func (r *recorder) belowFloor() error {
	total, free, err := r.space(r.cfg.Dir)
	if err != nil {
		return err
	}
	return &floorError{total: total, free: free, floor: r.cfg.DiskFloor(total)}
}

// disk is how many bytes the next write may have, of which the first packet needs some: nothing that would go below
// the floor, and the less, the nearer that is. Other captures write to the same disk between a look and the write.
func (r *recorder) disk(need uint64) (uint64, error) {
	total, free, err := r.space(r.cfg.Dir)
	if err != nil {
		return 0, err
	}
	if total == 0 {
		return math.MaxUint64, nil // a file system without a size, as a tmpfs may be
	}
	keep := r.cfg.DiskFloor(total) + floorSlack + uint64(len(r.tracks))*statisticsLen
	if free <= keep {
		return 0, nil
	}
	above := free - keep
	return min(above, max(above/32, diskPiece, need)), nil
}

// fileRoom is what the current file has left, without the space that its statistics need.
func (r *recorder) fileRoom() uint64 {
	most := uint64(r.cfg.MaxBytes)
	switch {
	case r.out == nil:
		return 0
	case r.cfg.Rotate != nil:
		most = uint64(r.cfg.Rotate.MaxBytes)
	case most == 0:
		return math.MaxUint64
	}
	return most - min(most, r.current().size+uint64(len(r.tracks))*statisticsLen)
}

// room is what the limits leave for a batch whose first packet needs so many bytes, and what bounds its bytes.
func (r *recorder) room(need uint64) (room, limit) {
	left, tight := everything, limitFile
	if r.cfg.MaxPackets > 0 {
		left.packets = uint64(r.cfg.MaxPackets) - r.written
	}
	left.bytes = r.fileRoom()
	if r.cfg.DiskFloor == nil || left.bytes < need {
		return left, tight
	}
	switch above, err := r.disk(need); {
	case err != nil:
		r.log.Warn("Looking at the disk failed", "error", err) // it is as if there were no floor
	case above < left.bytes:
		left.bytes, tight = above, limitDisk
	}
	return left, tight
}
