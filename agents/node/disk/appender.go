package disk

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	// bufferLen is how many bytes an Appender holds that are not in its file yet. A quiet file touches only the first
	// pages.
	bufferLen = 8 << 20
	// pieceLen is how many bytes are written at a time while the caller continues to append. Measured past the page
	// cache, on ext4 of Linux 6.18 and a virtual disk. CPU time in µs per MiB: 440 in pieces of 128 KiB, 280 of 256
	// KiB, 200 of 512 KiB, 150 of 1 MiB, 130 of 4 MiB.
	pieceLen = 1 << 20
	// directLen is the fewest bytes that are worth a write past the page cache.
	directLen = 64 << 10
	// cachedLen is how many bytes are written through the page cache at a time. A file system may make the folios of
	// its page cache as large as the write. From 128 KiB on they come from memory that a virtual machine returns to its
	// host while it is free (page_reporting_order 5), and the host must provide it again. Measured as above, in ns per
	// 548 bytes: 500 in writes of 4 KiB, 140 of 64 KiB, 1100 of 128 KiB and more. Where the host never took the memory:
	// 85 in writes of 1 MiB.
	cachedLen = 96 << 10
	// slowRate is the rate below which a disk counts as slow, in bytes per second. When the buffer is full because of a
	// slow disk, the next burstLen bytes go through the page cache, which takes them at once. With a fast disk that
	// would only cost more time.
	slowRate = 256 << 20
	burstLen = 64 << 20
	// Into a file in memory, appends of at least unbufferedLen bytes skip the buffer if their runs have at least
	// unbufferedRun bytes on average.
	unbufferedLen = 64 << 10
	unbufferedRun = 2 << 10
)

// Appender appends to a file that Create made, in the background, and past the page cache where the file system allows
// it (O_DIRECT). Appended bytes stay in memory until there are many or Flush is called. At every moment, also when the
// process is killed, the file is the beginning of the appended bytes.
//
// Only whole pages that no reader can have read go past the page cache: those after the file's last page. A partly
// written page is completed through the page cache. So a reader of the file finds the bytes that Size reports.
//
// One write runs at a time. A write that makes a file longer holds its inode's lock. Parallel writes were therefore not
// faster, even in space allocated before (fallocate), and took twice the CPU time. A disk works in parallel on long
// writes: all pending bytes go in one, up to half of the buffer.
//
// Large appends to a file in memory (tmpfs) are written by the caller, without the buffer.
//
// Its methods belong to one goroutine, except Size.
type Appender struct {
	file   target
	buffer []byte
	base   int64 // offset in the file of the buffer's first byte, modulo the buffer's length

	appended int64 // the end of all that was appended

	now func() time.Time

	mu       sync.Mutex
	moved    sync.Cond // written, writing or err has changed
	wanted   sync.Cond // wakes the writer: ready or closed has changed
	ready    int64     // the writer may write up to here
	written  int64     // the file's length
	writing  bool      // the writer or the caller is in a write
	err      error     // the failed write at written; no write follows
	reported bool      // the caller got err
	full     bool      // Append waits for room
	burst    int64     // bytes up to here go through the page cache, because the disk is slow
	started  bool      // the writer runs
	closed   bool
}

// NewAppender returns an Appender to an empty file. Close closes the file.
func NewAppender(f *os.File) (*Appender, error) {
	a := &Appender{}
	if err := a.open(newDirectFile(f)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return a, nil
}

func (a *Appender) open(file target) (err error) {
	a.file, a.now = file, time.Now
	a.moved.L, a.wanted.L = &a.mu, &a.mu
	a.buffer, err = newBuffer()
	return err
}

// Append takes all runs. On an error it returns how many bytes it took. It blocks only while the buffer is full.
func (a *Appender) Append(runs ...[]byte) (taken int, err error) {
	if a.file.inMemory() {
		if all := length(runs); all >= unbufferedLen && all >= unbufferedRun*len(runs) {
			return a.appendUnbuffered(runs)
		}
	}
	for _, r := range runs {
		for len(r) > 0 {
			room, err := a.room()
			if err != nil {
				return taken, err
			}
			n := copy(room, r)
			r = r[n:]
			taken += n
			a.appended += int64(n)
			a.startWrite()
		}
	}
	return taken, nil
}

func length(runs [][]byte) (all int) {
	for _, r := range runs {
		all += len(r)
	}
	return all
}

// Skip returns the runs without their first n bytes.
func Skip(runs [][]byte, n uint64) [][]byte {
	for len(runs) > 0 && n >= uint64(len(runs[0])) {
		n -= uint64(len(runs[0]))
		runs = runs[1:]
	}
	if n == 0 {
		return runs
	}
	return append([][]byte{runs[0][n:]}, runs[1:]...)
}

// appendUnbuffered writes the runs directly: writes to a file in memory do not block, and the buffer would cost another copy.
func (a *Appender) appendUnbuffered(runs [][]byte) (int, error) {
	if err := a.Flush(); err != nil {
		return 0, err
	}
	n, err := a.file.appendRuns(runs)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.appended += int64(n)
	a.ready, a.written, a.err = a.appended, a.appended, err
	return n, a.report()
}

// room returns the free part of the buffer for the next bytes, and waits while there is none.
func (a *Appender) room() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.err == nil && a.appended-a.written == bufferLen {
		a.full = true
		a.moved.Wait()
	}
	a.full = false
	if a.err != nil {
		return nil, a.report()
	}
	if a.written == a.appended && !a.writing {
		a.rebase() // reuse the first pages: they are in the processor's cache, and a quiet file needs no more
	}
	free := bufferLen - (a.appended - a.written)
	at := a.at(a.appended)
	return a.buffer[at:min(at+free, bufferLen)], nil
}

// rebase makes the buffer begin with the page that is written next.
func (a *Appender) rebase() { a.base = a.appended &^ (maxAlign - 1) }

// at is the position in the buffer of an offset in the file.
func (a *Appender) at(offset int64) int64 { return (offset - a.base) & (bufferLen - 1) }

// startWrite wakes the writer if at least pieceLen bytes are pending.
func (a *Appender) startWrite() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.appended-max(a.ready, a.written) < pieceLen {
		return
	}
	a.ready = a.appended &^ (maxAlign - 1)
	a.wake()
}

// wake wakes the writer, and starts it if needed.
func (a *Appender) wake() {
	if !a.started {
		a.started = true
		go a.write()
	}
	a.wanted.Signal()
}

// Push starts writing everything that was appended. A few bytes are written at once, to the page cache.
func (a *Appender) Push() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = a.appended
	if a.ready-a.written < directLen {
		a.writeReady()
	} else {
		a.wake()
	}
	return a.report()
}

// report returns the error, and remembers that the caller knows it.
func (a *Appender) report() error {
	a.reported = a.err != nil
	return a.err
}

// Flush returns when everything that was appended is in the file.
func (a *Appender) Flush() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = a.appended
	for a.err == nil && a.written < a.ready {
		if a.writing {
			a.moved.Wait()
		} else {
			a.writeReady()
		}
	}
	a.await()
	return a.report()
}

// await waits for the end of the current write.
func (a *Appender) await() {
	for a.writing {
		a.moved.Wait()
	}
}

// Size returns how many bytes are in the file, visible to all readers. Any goroutine may call it.
func (a *Appender) Size() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.written
}

// Pending returns how many appended bytes are not in the file.
func (a *Appender) Pending() int64 { return a.appended - a.Size() }

// Unwritten returns the bytes that are not in the file because of an error. They are valid until Truncate or Close.
func (a *Appender) Unwritten() [][]byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.await()
	if a.written == a.appended {
		return nil
	}
	from, to := a.at(a.written), a.at(a.appended)
	if from < to {
		return [][]byte{a.buffer[from:to]}
	}
	if to == 0 {
		return [][]byte{a.buffer[from:]}
	}
	return [][]byte{a.buffer[from:], a.buffer[:to]}
}

// ReadAt reads from the file.
func (a *Appender) ReadAt(b []byte, offset int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.await()
	if _, err := a.file.readAt(b, offset); err != nil {
		return fmt.Errorf("read back the result: %w", err)
	}
	return nil
}

// Truncate cuts the file to size bytes, which it must have, and drops pending bytes. Appending works again after an error.
func (a *Appender) Truncate(size int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = a.written
	a.await()
	if size > a.written {
		return fmt.Errorf("cut result to %d bytes: it has only %d", size, a.written)
	}
	if err := a.file.truncate(size); err != nil {
		return fmt.Errorf("cut result: %w", err)
	}
	a.appended, a.ready, a.written, a.burst, a.err, a.reported = size, size, size, 0, nil, false
	a.rebase()
	return nil
}

// Close flushes, unless the caller knows of an error, and closes the file without removing it.
func (a *Appender) Close() (err error) {
	if a.buffer == nil {
		return nil
	}
	if !a.reported {
		err = a.Flush()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.wanted.Signal()
	err = errors.Join(err, freeBuffer(a.buffer), a.file.close())
	a.buffer = nil
	return err
}
