package record

import (
	"os"

	"github.com/sonde-operator/sonde/agents/node/disk"
)

// Output is a file as the recorder needs it. disk.Appender implements it; tests replace it.
type Output interface {
	// Writev takes the runs, which reach the file later, and returns how many bytes it took: all of them, or an error,
	// which may concern bytes of an earlier call.
	Writev(runs [][]byte) (uint64, error)
	// Push starts writing all pending bytes. Flush returns when they are written.
	Push() error
	Flush() error
	// Size is the number of bytes in the file, Pending the number of taken bytes that are not in it yet. Unwritten
	// returns the pending bytes.
	Size() int64
	Pending() int64
	Unwritten() [][]byte
	// ReadAt reads from the file.
	ReadAt(b []byte, place int64) error
	// Truncate cuts the file to size bytes, which it must have, and drops pending bytes. The next Writev appends there.
	Truncate(size int64) error
	Close() error
}

// CreateFunc creates a new file without a name yet, for disk.Place.
type CreateFunc func(path string, mode os.FileMode) (Output, error)

// CreateFile is the CreateFunc of a file system.
func CreateFile(path string, mode os.FileMode) (Output, error) {
	f, err := disk.Create(path, mode)
	if err != nil {
		return nil, err
	}
	a, err := disk.NewAppender(f)
	if err != nil {
		return nil, err
	}
	return diskFile{a}, nil
}

// diskFile is the Output on a file system.
type diskFile struct{ *disk.Appender }

func (d diskFile) Writev(runs [][]byte) (uint64, error) {
	n, err := d.Append(runs...)
	return uint64(n), err
}
