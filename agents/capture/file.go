package capture

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/disk"
)

// maxRuns is how many runs one writev(2) takes (UIO_MAXIOV).
const maxRuns = 1024

const (
	// runLen is the length from which on a run takes no further packet.
	runLen = 64 << 10
	// maxWrite bounds what one writev(2) takes, but for a longer run. A file system may make the folios of its page
	// cache as large as the write is. From 128 KiB on they are of the memory that a virtual machine gives back to its
	// host while it is free (page_reporting_order 5), so that the host has to find it again. Measured on ext4 of Linux
	// 6.18, in ns of CPU time per 548 bytes: 500 by 4 KiB at a time, 140 by 64 KiB, 1100 by 128 KiB and more; with
	// memory that the host never took 85 by 1 MiB.
	maxWrite = 96 << 10
)

// output is the file as the engine needs it; tests put a slow or a full one in its place.
type output interface {
	// Writev appends the runs and returns how many bytes reached the file. All of them, or an error.
	Writev(runs [][]byte) (uint64, error)
	// Truncate cuts the file to size bytes; the next Writev appends there.
	Truncate(size int64) error
	Close() error
}

// diskFile is the output on a file system. Memory is handed to the kernel as it is: no buffer in between.
type diskFile struct {
	f   *os.File
	iov []unix.Iovec
}

// createFile makes a new file, to be placed.
func createFile(path string, mode os.FileMode) (output, error) {
	f, err := disk.Create(path, mode)
	if err != nil {
		return nil, err
	}
	return &diskFile{f: f, iov: make([]unix.Iovec, 0, maxRuns)}, nil
}

func (d *diskFile) Writev(runs [][]byte) (uint64, error) {
	var done uint64
	for len(runs) > 0 {
		n := oneWrite(runs)
		w, err := d.writeAll(runs[:n])
		done += w
		if err != nil {
			return done, err
		}
		runs = runs[n:]
	}
	return done, nil
}

// oneWrite is how many runs one writev(2) is to take: at least one.
func oneWrite(runs [][]byte) int {
	size := 0
	for n, r := range runs {
		if size += len(r); n > 0 && (size > maxWrite || n == maxRuns) {
			return n
		}
	}
	return len(runs)
}

// writeAll writes at most maxRuns runs and goes on after short writes.
func (d *diskFile) writeAll(runs [][]byte) (uint64, error) {
	d.iov = d.iov[:0]
	for _, r := range runs {
		v := unix.Iovec{Base: unsafe.SliceData(r)}
		v.SetLen(len(r))
		d.iov = append(d.iov, v)
	}
	var done uint64
	for v := advance(d.iov, 0); len(v) > 0; {
		n, _, errno := unix.Syscall(unix.SYS_WRITEV, d.f.Fd(), uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)))
		runtime.KeepAlive(runs)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return done, errno
		case n == 0:
			return done, unix.EIO
		}
		done += uint64(n)
		v = advance(v, int(n))
	}
	return done, nil
}

// advance drops the first n bytes of the vector.
func advance(v []unix.Iovec, n int) []unix.Iovec {
	for len(v) > 0 && n >= int(v[0].Len) {
		n -= int(v[0].Len)
		v = v[1:]
	}
	if n > 0 {
		v[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(v[0].Base), n))
		v[0].SetLen(int(v[0].Len) - n)
	}
	return v
}

func (d *diskFile) Truncate(size int64) error { return d.f.Truncate(size) }

func (d *diskFile) Close() error { return d.f.Close() }

// readTail reads the packet blocks between two places of a file.
func readTail(path string, from, to uint64) (*batch, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read what was written last: %w", err)
	}
	defer f.Close()
	b := &batch{runs: [][]byte{make([]byte, to-from)}}
	if _, err := f.ReadAt(b.runs[0], int64(from)); err != nil {
		return nil, fmt.Errorf("read what was written last: %w", err)
	}
	b.recount()
	return b, nil
}
