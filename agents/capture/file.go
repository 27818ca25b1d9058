package capture

import (
	"os"

	"github.com/sonde-operator/sonde/agents/node/disk"
)

// output is the file as the engine needs it; tests put a slow or a full one in its place. Its methods are those of
// disk.Appender, which is the one that there is.
type output interface {
	// Writev appends the runs, which may be in the file later, and returns how many bytes it took. All of them, or an
	// error, which may be of what it took before.
	Writev(runs [][]byte) (uint64, error)
	// Push has all in the file soon, Flush when it returns.
	Push() error
	Flush() error
	// Size is how many bytes are in the file, Pending how many were taken and are not, and Unwritten what these are.
	Size() int64
	Pending() int64
	Unwritten() [][]byte
	// ReadAt reads what is in the file.
	ReadAt(b []byte, place int64) error
	// Truncate cuts the file to size bytes, which it has, and drops what is not in it; the next Writev appends there.
	Truncate(size int64) error
	Close() error
}

// diskFile is the output on a file system.
type diskFile struct{ *disk.Appender }

// createFile makes a new file, to be placed.
func createFile(path string, mode os.FileMode) (output, error) {
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

func (d diskFile) Writev(runs [][]byte) (uint64, error) {
	n, err := d.Append(runs...)
	return uint64(n), err
}
