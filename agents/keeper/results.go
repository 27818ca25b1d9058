package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/account"
)

// fileSuffix is the name's end of every capture file.
const fileSuffix = ".pcapng"

// maxName is the longest name of a file (NAME_MAX of Linux).
const maxName = 255

// errNotServed says that a name is none of the result's files. It does not say whether such a file exists.
var errNotServed = errors.New("no such file in the result: ask for one of the names in the account")

// results is the volume that the probe writes.
type results struct {
	dir *os.File
}

func openResults(path string) (*results, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open results volume %s: %w", path, err)
	}
	return &results{dir: os.NewFile(uintptr(fd), path)}, nil
}

func (r *results) close() error { return r.dir.Close() }

// served tells whether name is one that a client may ask for, given the probe's account.
func served(name string, files []account.File) bool {
	if name == "" || len(name) > maxName || name[0] == '.' || strings.ContainsAny(name, "/\x00") {
		return false
	}
	return strings.HasSuffix(name, fileSuffix) ||
		slices.ContainsFunc(files, func(f account.File) bool { return f.Name == name })
}

// open opens a regular file that lies directly in the volume. A symbolic link, a directory, a device or a FIFO is
// never opened: the volume is written by a privileged process and its content is not trusted to stay inside it.
func (r *results) open(name string) (*os.File, int64, error) {
	if name == "." || name == ".." || strings.ContainsRune(name, '/') {
		return nil, 0, errNotServed
	}
	dir := int(r.dir.Fd())
	var st unix.Stat_t
	// Looking first keeps even the open of a device from happening; the second look, at what was opened, is the one
	// that counts.
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, 0, r.refusal(name, err)
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, r.refusal(name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, 0, errors.Join(r.refusal(name, err), f.Close())
	}
	return f, st.Size, nil
}

// refusal turns what cannot be served into errNotServed, and keeps what is an error of the volume.
func (r *results) refusal(name string, err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return errNotServed
	}
	return fmt.Errorf("open %q in %s: %w", name, r.dir.Name(), err)
}
