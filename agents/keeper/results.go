package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Ends of the names of results: of packets, and of a trace's lines.
const (
	packetSuffix = ".pcapng"
	traceSuffix  = ".ndjson"
	flapSuffix   = ".log"
)

// isResult tells by its name whether a file is one of a result.
func isResult(name string) bool {
	return strings.HasSuffix(name, packetSuffix) || isText(name)
}

// isText tells whether a file holds lines.
func isText(name string) bool {
	return strings.HasSuffix(name, traceSuffix) || strings.HasSuffix(name, flapSuffix)
}

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
	return isResult(name) ||
		slices.ContainsFunc(files, func(f account.File) bool { return f.Name == name })
}

// wholeSize is how much of a file may be served: up to its last whole block or line. The probe may be writing, or was killed
// while it was. Up to the size that its account names it is whole. What does not begin with a block is not ours to cut.
func wholeSize(f *os.File, name string, size int64, files []account.File) int64 {
	var known int64
	for _, n := range files {
		if n.Name == name && n.Bytes > 0 && n.Bytes <= size {
			known = n.Bytes
		}
	}
	if isText(name) {
		return wholeLines(f, known, size)
	}
	if whole := pcapng.Whole(f, known, size); whole > 0 {
		return whole
	}
	return size
}

// named reads a file as long as it has a name. One that a ring of files removed takes no space any more, and holds
// nothing.
type named struct {
	f    *os.File
	gone bool
}

// ReadAt implements io.ReaderAt.
func (n *named) ReadAt(b []byte, off int64) (int, error) {
	read, err := n.f.ReadAt(b, off)
	var st unix.Stat_t
	if serr := unix.Fstat(int(n.f.Fd()), &st); serr != nil || st.Nlink == 0 {
		n.gone = true
		return 0, errNotServed
	}
	return read, err
}

// list returns the capture files that there are, with the sizes that are served; at most as many as an account holds,
// the newest. What a ring's account names no more is left out: it was about to be removed.
func (r *results) list(known []account.File) ([]account.File, error) {
	names, err := r.files()
	if err != nil {
		return nil, err
	}
	var files []account.File
	for _, name := range names {
		if givenUp(name, known) {
			continue
		}
		f, size, err := r.open(name)
		if err != nil {
			continue // no file of the result, or just removed
		}
		files = append(files, account.File{Name: name, Bytes: wholeSize(f, name, size, known)})
		_ = f.Close() // opened for reading
	}
	return files[max(0, len(files)-account.MaxFiles):], nil
}

// givenUp tells whether a file of a ring, whose names are in the order of time, is older than the oldest that is named.
func givenUp(name string, known []account.File) bool {
	return len(known) > 0 && name < known[0].Name
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
