package record

import (
	"os"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Config says where to write packets, and how many. A field is required unless its comment describes its zero value.
type Config struct {
	// SnapLen is the most bytes of a packet to keep.
	SnapLen int
	// OptionsLen is the most bytes of options that a packet's block has besides its flags.
	OptionsLen int
	// MaxBytes is the most bytes that the file may have, its final statistics included; zero means no limit. With
	// Rotate it does not end the capture.
	MaxBytes int64
	// MaxPackets is the number of packets after which the capture ends; zero means no limit.
	MaxPackets int64
	// Rotate, if not nil, makes a ring of files that keeps the newest packets.
	Rotate *Rotate
	// DiskFloor, if not nil, returns how many bytes of a file system of total bytes stay free. Before the free space
	// falls below, the capture ends with recording.DiskFull. If it is already below, Open fails with an error for which
	// disk.IsFull is true.
	DiskFloor func(total uint64) uint64
	// FilesChanged, if not nil, is called whenever the account's list of files has changed, and before a file is
	// removed that the previous list names.
	FilesChanged func()
	// Dir and Base name the file: Dir/Base.pcapng, and Dir/Base-0000000001.pcapng and so on in a ring. The files must
	// not exist.
	Dir  string
	Base string
	// FileMode is the mode of the file.
	FileMode os.FileMode
	// Section is the file's section header.
	Section pcapng.Section
}

// Rotate keeps the newest packets in a ring of files. The oldest is removed before the next is begun, so that there
// are never more than Files files, nor more than Files times MaxBytes bytes.
type Rotate struct {
	// MaxBytes of one file, from MinRotateBytes.
	MaxBytes int64
	// Files at a time, from 2.
	Files int
}

// MinRotateBytes is the least size of a ring's files: their descriptions must leave room for packets.
const MinRotateBytes = 65536
