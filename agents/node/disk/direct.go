package disk

import (
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// pageLen is the alignment of direct writes on most file systems. If a file system needs more than maxAlign, its files are
// written through the page cache.
const (
	pageLen  = 4096
	maxAlign = 64 << 10
)

// target is a file as an Appender needs it.
type target interface {
	// align is the alignment of direct writes in bytes; zero if they are not possible.
	align() int
	// append writes at the file's end and returns how many bytes it wrote: all of them, or an error.
	append(p []byte, direct bool) (int, error)
	// appendRuns is append for many pieces, through the page cache.
	appendRuns(runs [][]byte) (int, error)
	// inMemory reports whether the file exists only in the page cache.
	inMemory() bool
	// stopDirect ends direct writes: align returns zero.
	stopDirect()
	readAt(p []byte, offset int64) (int, error)
	truncate(size int64) error
	close() error
}

// directFile is the target on a file system. It switches one descriptor between direct and cached writes: a second
// descriptor would need the file's path.
type directFile struct {
	f      *os.File
	flags  int // the descriptor's, without O_DIRECT
	direct bool
	unit   int
	memory bool
}

func newDirectFile(f *os.File) *directFile {
	d := &directFile{f: f}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return d
	}
	d.flags = flags
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return d
	}
	if d.memory = fs.Type == unix.TMPFS_MAGIC; d.memory {
		return d // tmpfs accepts O_DIRECT and ignores it
	}
	if unit := alignOf(int(f.Fd()), int(fs.Bsize)); unit > 0 && d.set(true) == nil {
		d.unit = unit
	}
	return d
}

// alignOf returns the alignment of a file's direct writes in bytes; zero if the file does not support them. block is
// the file system's block size. It is at least a page and a block of the file system, so that no unit of the page cache
// is written both ways.
func alignOf(fd, block int) int {
	unit := max(pageLen, os.Getpagesize(), block)
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st) // since Linux 6.1
	if err == nil && st.Mask&unix.STATX_DIOALIGN != 0 {
		if st.Dio_offset_align == 0 || int(st.Dio_mem_align) > pageLen {
			return 0
		}
		unit = max(unit, int(st.Dio_offset_align))
	}
	if unit > maxAlign || unit&(unit-1) != 0 {
		return 0
	}
	return unit
}

// set switches the descriptor.
func (d *directFile) set(direct bool) error {
	if d.direct == direct {
		return nil
	}
	flags := d.flags
	if direct {
		flags |= unix.O_DIRECT
	}
	if _, err := unix.FcntlInt(d.f.Fd(), unix.F_SETFL, flags); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	d.direct = direct
	return nil
}

func (d *directFile) align() int { return d.unit }

func (d *directFile) inMemory() bool { return d.memory }

func (d *directFile) stopDirect() { d.unit = 0 }

func (d *directFile) append(p []byte, direct bool) (done int, err error) {
	if err := d.set(direct); err != nil {
		return 0, err
	}
	for done < len(p) {
		n, err := unix.Write(int(d.f.Fd()), p[done:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return done, os.NewSyscallError("write", err)
		case n == 0:
			return done, unix.EIO
		}
		done += n
	}
	runtime.KeepAlive(d.f)
	return done, nil
}

// maxRuns is how many runs one system call takes (UIO_MAXIOV).
const maxRuns = 1024

func (d *directFile) appendRuns(runs [][]byte) (done int, err error) {
	if err := d.set(false); err != nil {
		return 0, err
	}
	for len(runs) > 0 {
		n, err := unix.Writev(int(d.f.Fd()), runs[:min(len(runs), maxRuns)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return done, os.NewSyscallError("writev", err)
		case n == 0 && len(runs[0]) > 0:
			return done, unix.EIO
		}
		done += n
		runs = Skip(runs, uint64(n))
	}
	runtime.KeepAlive(d.f)
	return done, nil
}

func (d *directFile) readAt(p []byte, offset int64) (int, error) {
	if err := d.set(false); err != nil {
		return 0, err
	}
	n, err := d.f.ReadAt(p, offset)
	if n == len(p) && err == io.EOF {
		err = nil
	}
	return n, err
}

func (d *directFile) truncate(size int64) error { return d.f.Truncate(size) }

func (d *directFile) close() error { return d.f.Close() }
