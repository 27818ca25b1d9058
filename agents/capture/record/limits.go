package record

import (
	"math"

	"github.com/sonde-operator/sonde/agents/node/disk"
)

// limit says which limit bounds the next write.
type limit int

const (
	limitFile limit = iota
	limitDisk
)

// disk returns how many bytes the next write may have above the floor. Its first packet has need bytes. Pending bytes
// are subtracted, because the free space of the disk still includes them.
func (r *Recorder) disk(need uint64) (uint64, error) {
	room, err := r.floor().Room(need, r.statisticsLen())
	return room - min(room, r.pending()), err
}

func (r *Recorder) floor() *disk.Floor {
	return &disk.Floor{Dir: r.cfg.Dir, Keep: r.cfg.DiskFloor, Space: r.space}
}

// fullError is the error of a write for which the disk has no room.
func (r *Recorder) fullError() error {
	written := uint64(0)
	for _, f := range r.files {
		written += f.size
	}
	return r.floor().FullError(written)
}

// fileRoom returns how many bytes the current file has left, without the space that its statistics need.
func (r *Recorder) fileRoom() uint64 {
	most := uint64(r.cfg.MaxBytes)
	switch {
	case r.out == nil:
		return 0
	case r.cfg.Rotate != nil:
		most = uint64(r.cfg.Rotate.MaxBytes)
	case most == 0:
		return math.MaxUint64
	}
	return most - min(most, r.current().size+r.statisticsLen())
}

// room returns the limits of a batch whose first packet has need bytes, and which limit bounds its bytes.
func (r *Recorder) room(need uint64) (room, limit) {
	left, by := unlimited, limitFile
	if r.cfg.MaxPackets > 0 {
		left.packets = uint64(r.cfg.MaxPackets) - r.written
	}
	left.bytes = r.fileRoom()
	if r.cfg.DiskFloor == nil || left.bytes < need {
		return left, by
	}
	switch above, err := r.disk(need); {
	case err != nil:
		r.log.Warn("Reading the free disk space failed", "error", err) // continue without the floor
	case above < left.bytes:
		left.bytes, by = above, limitDisk
	}
	return left, by
}
