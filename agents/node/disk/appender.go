package disk

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	// bufferLen is how much an Appender holds that is not in its file yet. Of a quiet file only the first pages are ever touched.
	bufferLen = 8 << 20
	// pieceLen is how much is written at a time while its caller goes on appending. Measured past the page cache, on ext4 of
	// Linux 6.18 and a virtual disk, in µs of CPU time per MiB: 440 by 128 KiB at a time, 280 by 256 KiB, 200 by 512 KiB, 150 by
	// 1 MiB, 130 by 4 MiB.
	pieceLen = 1 << 20
	// directLen is what is worth a write past the page cache.
	directLen = 64 << 10
	// cachedLen is how much is written through the page cache at a time. A file system may make the folios of its page cache as
	// large as the write is. From 128 KiB on they are of the memory that a virtual machine gives back to its host while it is
	// free (page_reporting_order 5), so that the host has to find it again. Measured as above, in ns per 548 bytes: 500 by 4 KiB
	// at a time, 140 by 64 KiB, 1100 by 128 KiB and more; with memory that the host never took 85 by 1 MiB.
	cachedLen = 96 << 10
	// slowRate is how many bytes a second a disk writes at least that is not slow, and hurryLen is how much goes through the page
	// cache when a slow one has the buffer full: the page cache takes at once what a slow disk takes a while for. From a fast one
	// it would only take more time.
	slowRate = 256 << 20
	hurryLen = 64 << 20
	// straightLen is what is worth a write of its own into a file in memory, straightRun the bytes that its runs have on average
	// at least.
	straightLen = 64 << 10
	straightRun = 2 << 10
)

// Appender appends to a file that Create made, past the page cache where the file system lets it (O_DIRECT), and in the
// background: what is appended is in memory until there is much of it or Flush asks for it. At every moment, also when the
// process is killed, the file is the beginning of what was appended.
//
// Past the page cache only whole pages are written that nobody can have read: those behind the file's last, which once it was
// begun is written through the page cache to its end. So whoever reads the file meanwhile finds what Size says that there is.
//
// One write is under way at a time. A write that makes a file longer holds its inode's lock, so that several did no more in
// parallel, also in space that was allocated before (fallocate), and took twice the CPU time. What a disk can do at once it gets
// by the length of writes: whatever waits goes in one, up to the half of the buffer.
//
// Into a file in memory (tmpfs) what comes by much is written by the one who appends, from where it lies.
//
// Its methods belong to one goroutine, but Size.
type Appender struct {
	file   target
	buffer []byte
	base   int64 // place in the file of the buffer's first byte, as of those before and behind it by its length

	appended int64 // the end of all that was appended

	now func() time.Time

	mu      sync.Mutex
	moved   sync.Cond // of mu: written, writing or err
	wanted  sync.Cond // of mu: ready or closed, for the writer
	ready   int64     // the end of what is to be written
	written int64     // the end of what is in the file
	writing bool      // somebody is
	err     error     // of the write at written; none follows
	told    bool      // the caller knows it
	full    bool      // Append waits for room
	hurried int64     // the end of what goes through the page cache because of that
	started bool      // the writer
	closed  bool
}

// NewAppender appends to a file that is empty, and closes it in the end.
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

// Append takes all of the runs, or as many bytes as it returns and why. It waits for a disk only while the buffer is full.
func (a *Appender) Append(runs ...[]byte) (taken int, err error) {
	if a.file.inMemory() {
		if all := length(runs); all >= straightLen && all >= straightRun*len(runs) {
			return a.straight(runs)
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
			a.begin()
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

// Behind is what is left of runs behind their first n bytes.
func Behind(runs [][]byte, n uint64) [][]byte {
	for len(runs) > 0 && n >= uint64(len(runs[0])) {
		n -= uint64(len(runs[0]))
		runs = runs[1:]
	}
	if n == 0 {
		return runs
	}
	return append([][]byte{runs[0][n:]}, runs[1:]...)
}

// straight writes the runs from where they lie: a file in memory has nobody wait, and the buffer would only cost a second copy.
func (a *Appender) straight(runs [][]byte) (int, error) {
	if err := a.Flush(); err != nil {
		return 0, err
	}
	n, err := a.file.appendRuns(runs)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.appended += int64(n)
	a.ready, a.written, a.err = a.appended, a.appended, err
	return n, a.tell()
}

// room is the free part of the buffer that begins where the next byte belongs.
func (a *Appender) room() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.err == nil && a.appended-a.written == bufferLen {
		a.full = true
		a.moved.Wait()
	}
	a.full = false
	if a.err != nil {
		return nil, a.tell()
	}
	if a.written == a.appended && !a.writing {
		a.rebase() // to the pages that are in the processor's cache, and the only ones that a quiet file takes
	}
	free := bufferLen - (a.appended - a.written)
	at := a.at(a.appended)
	return a.buffer[at:min(at+free, bufferLen)], nil
}

// rebase has the buffer begin with the pages that are to be written next.
func (a *Appender) rebase() { a.base = a.appended &^ (maxAlign - 1) }

// at is where in the buffer a place of the file lies.
func (a *Appender) at(place int64) int64 { return (place - a.base) & (bufferLen - 1) }

// begin has the writer write what there is once it is much.
func (a *Appender) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.appended-max(a.ready, a.written) < pieceLen {
		return
	}
	a.ready = a.appended &^ (maxAlign - 1)
	a.wake()
}

// wake has the writer write what is ready.
func (a *Appender) wake() {
	if !a.started {
		a.started = true
		go a.write()
	}
	a.wanted.Signal()
}

// Push has all that was appended written soon: at once where it is little, which the page cache takes.
func (a *Appender) Push() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = a.appended
	if a.ready-a.written < directLen {
		a.writeReady()
	} else {
		a.wake()
	}
	return a.tell()
}

// tell returns the error.
func (a *Appender) tell() error {
	a.told = a.err != nil
	return a.err
}

// Flush returns when all that was appended is in the file.
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
	a.settle()
	return a.tell()
}

// settle waits until nobody writes.
func (a *Appender) settle() {
	for a.writing {
		a.moved.Wait()
	}
}

// Size is how many bytes are in the file, for everybody to read. It is safe for any goroutine.
func (a *Appender) Size() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.written
}

// Pending is how many bytes were appended and are not in the file.
func (a *Appender) Pending() int64 { return a.appended - a.Size() }

// Unwritten is what was appended and is not in the file, after an error: until Truncate or Close.
func (a *Appender) Unwritten() [][]byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settle()
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

// ReadAt reads what is in the file.
func (a *Appender) ReadAt(b []byte, place int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settle()
	if _, err := a.file.readAt(b, place); err != nil {
		return fmt.Errorf("read what was written: %w", err)
	}
	return nil
}

// Truncate cuts the file to a size that it has, and drops what is not in it. After an error it begins anew there.
func (a *Appender) Truncate(size int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = a.written
	a.settle()
	if size > a.written {
		return fmt.Errorf("cut result to %d bytes, of which there are %d", size, a.written)
	}
	if err := a.file.truncate(size); err != nil {
		return fmt.Errorf("cut result: %w", err)
	}
	a.appended, a.ready, a.written, a.hurried, a.err, a.told = size, size, size, 0, nil, false
	a.rebase()
	return nil
}

// Close flushes, unless an error was told before, and lets go of the file, which stays.
func (a *Appender) Close() (err error) {
	if a.buffer == nil {
		return nil
	}
	if !a.told {
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
