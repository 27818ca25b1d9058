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
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Suffixes of results: packets, JSON lines, FLAP's lines.
const (
	packetSuffix = ".pcapng"
	traceSuffix  = ".ndjson"
	flapSuffix   = ".log"
)

// isResult reports whether a file is a result, by its name.
func isResult(name string) bool {
	return strings.HasSuffix(name, packetSuffix) || isText(name)
}

// isText reports whether a file is a trace's, which has lines.
func isText(name string) bool {
	return strings.HasSuffix(name, traceSuffix) || strings.HasSuffix(name, flapSuffix)
}

// maxName is the longest name of a file (NAME_MAX of Linux).
const maxName = 255

// errNotServed is returned for a name that is not one of the result's files, whether or not such a file exists.
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

// isServed reports whether a client may ask for a name. files are the account's files.
func isServed(name string, files []account.File) bool {
	if name == "" || len(name) > maxName || name[0] == '.' || strings.ContainsAny(name, "/\x00") {
		return false
	}
	return isResult(name) ||
		slices.ContainsFunc(files, func(f account.File) bool { return f.Name == name })
}

// completeSize returns how many bytes of a file may be served: up to its last complete block or line. The probe may be
// writing the file, or was killed meanwhile. Up to its size in the account it is complete. A file that does not start
// with a block is served whole.
func completeSize(f *os.File, name string, size int64, files []account.File) int64 {
	var known int64
	for _, n := range files {
		if n.Name == name && n.Bytes > 0 && n.Bytes <= size {
			known = max(known, n.Bytes)
		}
	}
	if isText(name) {
		return lastLineEnd(f, known, size)
	}
	if whole := pcapng.CompleteLen(f, known, size); whole > 0 {
		return whole
	}
	return size
}

// linkedFile reads a file as long as it has a name. A ring of files frees the space of a file when it removes it.
type linkedFile struct {
	f       *os.File
	removed bool
}

// ReadAt implements io.ReaderAt.
func (n *linkedFile) ReadAt(b []byte, off int64) (int, error) {
	read, err := n.f.ReadAt(b, off)
	var st unix.Stat_t
	if serr := unix.Fstat(int(n.f.Fd()), &st); serr != nil || st.Nlink == 0 {
		n.removed = true
		return 0, errNotServed
	}
	return read, err
}

// horizon returns the time up to which all packets are in the file; zero if the probe does not say it.
func (r *results) horizon() uint64 {
	f, size, err := r.open(captureconfig.HorizonFile)
	if err != nil {
		return 0
	}
	defer f.Close()
	b := make([]byte, captureconfig.HorizonLen)
	if _, err := f.ReadAt(b, 0); err != nil || size != captureconfig.HorizonLen {
		return 0
	}
	return captureconfig.ParseHorizon(b)
}

// list returns the volume's newest results, at most account.MaxFiles, with the sizes that are served. It leaves out
// files that a ring's account no longer names: they were about to be removed.
func (r *results) list(known []account.File) ([]account.File, error) {
	names, err := r.files()
	if err != nil {
		return nil, err
	}
	var files []account.File
	for _, name := range names {
		if isOverwritten(name, known) {
			continue
		}
		f, size, err := r.open(name)
		if err != nil {
			continue // not a result, or just removed
		}
		files = append(files, account.File{Name: name, Bytes: completeSize(f, name, size, known)})
		_ = f.Close() // opened for reading
	}
	return files[max(0, len(files)-account.MaxFiles):], nil
}

// isOverwritten reports whether a file of a ring is older than the oldest in the account. Other files have no order.
func isOverwritten(name string, known []account.File) bool {
	base, number, inRing := captureconfig.ParseRingFile(name)
	if !inRing || len(known) == 0 {
		return false
	}
	first, oldest, inRing := captureconfig.ParseRingFile(known[0].Name)
	return inRing && base == first && number < oldest
}

// open opens a regular file directly in the volume. It never opens a symbolic link, a directory, a device or a FIFO: the
// volume's writer is not trusted to stay inside it.
func (r *results) open(name string) (*os.File, int64, error) {
	if name == "." || name == ".." || strings.ContainsRune(name, '/') {
		return nil, 0, errNotServed
	}
	dir := int(r.dir.Fd())
	var st unix.Stat_t
	// This check avoids opening a device. The check of the opened file below is the one that decides.
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

// refusal returns errNotServed for a file that must not be served, and wraps an error of the volume.
func (r *results) refusal(name string, err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return errNotServed
	}
	return fmt.Errorf("open %q in %s: %w", name, r.dir.Name(), err)
}
