package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeFile is a target in memory that takes direct writes, with a gate to pass and a limit.
type fakeFile struct {
	unit    int
	gate    chan struct{} // nil lets all pass
	entered chan struct{}
	content []byte
	direct  int64 // bytes
	left    int   // bytes until it fails
	err     error
	refuses error // error of direct writes
	rate    int64 // bytes a second
	clock   time.Duration
	memory  bool
	runs    int // runs written without the buffer
}

func newFake() *fakeFile { return &fakeFile{unit: pageLen, left: 1 << 40} }

func (f *fakeFile) append(p []byte, direct bool) (int, error) {
	if f.gate != nil {
		f.entered <- struct{}{}
		<-f.gate
	}
	if direct && f.refuses != nil {
		return 0, f.refuses
	}
	n := min(len(p), f.left)
	f.left -= n
	f.content = append(f.content, p[:n]...)
	if direct {
		f.direct += int64(n)
	}
	if f.rate > 0 {
		f.clock += time.Duration(n) * time.Second / time.Duration(f.rate)
	}
	if n < len(p) {
		return n, f.err
	}
	return n, nil
}

func (f *fakeFile) appendRuns(runs [][]byte) (done int, err error) {
	for i := 0; i < len(runs) && err == nil; i++ {
		var n int
		n, err = f.append(runs[i], false)
		done += n
		f.runs++
	}
	return done, err
}

func (f *fakeFile) align() int     { return f.unit }
func (f *fakeFile) inMemory() bool { return f.memory }
func (f *fakeFile) stopDirect()    { f.unit = 0 }
func (f *fakeFile) close() error   { return nil }
func (f *fakeFile) readAt(p []byte, place int64) (int, error) {
	return bytes.NewReader(f.content).ReadAt(p, place)
}

func (f *fakeFile) truncate(size int64) error {
	f.content = f.content[:size]
	return nil
}

func on(t *testing.T, f *fakeFile) *Appender {
	t.Helper()
	a := &Appender{}
	if err := a.open(f); err != nil {
		t.Fatal(err)
	}
	a.now = func() time.Time { return time.Time{} } // the disk is never slow
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>16 ^ i>>8*31 ^ i)
	}
	return b
}

// Large writes go past the page cache, and small ones do not. If the kernel refuses direct writes, all go through the
// page cache.
func TestDirectWrites(t *testing.T) {
	for name, tc := range map[string]struct {
		file    fakeFile
		hurried int64
		bytes   int
		flushed int // first
		want    int64
	}{
		"much":              {fakeFile{unit: pageLen}, 0, 10<<20 + 5, 0, 10 << 20},
		"after a part":      {fakeFile{unit: pageLen}, 0, 10 << 20, 100, 10<<20 - pageLen},
		"little":            {fakeFile{unit: pageLen}, 0, directLen - 1, 0, 0},
		"larger pages":      {fakeFile{unit: 64 << 10}, 0, 10<<20 + 5, 0, 10 << 20},
		"in a hurry":        {fakeFile{unit: pageLen}, 3 << 20, 10 << 20, 0, 7 << 20},
		"never":             {fakeFile{}, 0, 10 << 20, 0, 0},
		"refused":           {fakeFile{unit: pageLen, refuses: unix.EINVAL}, 0, 10 << 20, 0, 0},
		"not supported":     {fakeFile{unit: pageLen, refuses: unix.EOPNOTSUPP}, 0, 10 << 20, 0, 0},
		"no room for a lot": {fakeFile{unit: pageLen, refuses: unix.ENOSPC}, 0, 10 << 20, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := tc.file
			f.left = 1 << 40
			a := on(t, &f)
			a.burst = tc.hurried
			want := pattern(tc.bytes)
			if _, err := a.Append(want[:tc.flushed]); err != nil || a.Flush() != nil {
				t.Fatal(err, a.Flush())
			}
			if _, err := a.Append(want[tc.flushed:]); err != nil || a.Flush() != nil {
				t.Fatal(err, a.Flush())
			}
			if !bytes.Equal(f.content, want) {
				t.Errorf("%d bytes are not the %d that were appended", len(f.content), len(want))
			}
			if f.direct != tc.want {
				t.Errorf("%d bytes went past the page cache, want %d", f.direct, tc.want)
			}
		})
	}
}

func TestSkip(t *testing.T) {
	runs := [][]byte{[]byte("ab"), []byte("c"), {}, []byte("def")}
	const all = "abcdef"
	for n := range len(all) + 1 {
		if got := bytes.Join(Skip(runs, uint64(n)), nil); string(got) != all[n:] {
			t.Errorf("after %d bytes: %q, want %q", n, got, all[n:])
		}
	}
	if !bytes.Equal(bytes.Join(runs, nil), []byte(all)) {
		t.Errorf("the runs are %q now", runs)
	}
}

// Large appends to a file in memory skip the buffer, after earlier bytes. Small appends and small runs are buffered.
func TestIntoMemory(t *testing.T) {
	many := func(n, each int) [][]byte { return slices.Collect(slices.Chunk(pattern(n*each), each)) }
	for name, tc := range map[string]struct {
		memory bool
		runs   [][]byte
		want   int
	}{
		"much":           {true, many(3, unbufferedLen), 3},
		"many":           {true, many(100, unbufferedRun), 100},
		"little":         {true, many(1, unbufferedLen-1), 0},
		"small runs":     {true, many(10_000, 100), 0},
		"much on a disk": {false, many(3, unbufferedLen), 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.memory = tc.memory
			a := on(t, f)
			begin, end := []byte("begin"), []byte("end")
			for _, runs := range [][][]byte{{begin}, tc.runs, {end}} {
				if n, err := a.Append(runs...); err != nil || n != length(runs) {
					t.Fatal(n, err)
				}
			}
			if err := a.Flush(); err != nil {
				t.Fatal(err)
			}
			if want := slices.Concat(begin, slices.Concat(tc.runs...), end); !bytes.Equal(f.content, want) || a.Size() != int64(len(want)) {
				t.Errorf("%d bytes are not the %d that were appended", len(f.content), len(want))
			}
			if f.runs != tc.want {
				t.Errorf("%d runs were written without the buffer, want %d", f.runs, tc.want)
			}
		})
	}
}

// Append waits for the disk only when the buffer is full.
func TestAppendDoesNotWait(t *testing.T) {
	f := newFake()
	f.gate, f.entered = make(chan struct{}), make(chan struct{}, 1000)
	a := on(t, f)
	want := pattern(bufferLen + 100)
	if _, err := a.Append(want[:bufferLen]); err != nil {
		t.Fatal(err)
	}
	<-f.entered
	if a.Size() != 0 || a.Pending() != bufferLen {
		t.Errorf("Size returned %d, Pending %d", a.Size(), a.Pending())
	}
	appended := make(chan error)
	go func() {
		_, err := a.Append(want[bufferLen:])
		appended <- err
	}()
	select {
	case err := <-appended:
		t.Errorf("a full buffer took more (%v)", err)
	default:
	}
	close(f.gate)
	if err := <-appended; err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(); err != nil || !bytes.Equal(f.content, want) {
		t.Errorf("%d bytes are not the %d that were appended (%v)", len(f.content), len(want), err)
	}
}

// When the buffer is full because of a slow disk, bytes go through the page cache for a while. With a fast disk they do
// not.
func TestSlowDisk(t *testing.T) {
	const size = 4 * bufferLen
	for name, tc := range map[string]struct {
		rate int64 // of the disk, in bytes per second
		want func(direct int64) bool
	}{
		"slow": {slowRate / 2, func(direct int64) bool { return direct <= 2*bufferLen }},
		"fast": {slowRate * 2, func(direct int64) bool { return direct == size }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.gate, f.entered, f.rate = make(chan struct{}), make(chan struct{}, 1000), tc.rate
			a := on(t, f)
			a.now = func() time.Time { return time.Unix(0, int64(f.clock)) }
			want := pattern(size)
			f.content = make([]byte, 0, size) // a growing slice would take twice the memory
			appended := make(chan error)
			go func() {
				_, err := a.Append(want)
				appended <- err
			}()
			<-f.entered
			// The disk waits until the buffer is full.
			for !isFull(a) {
				runtime.Gosched()
			}
			close(f.gate)
			if err := <-appended; err != nil {
				t.Fatal(err)
			}
			if err := a.Flush(); err != nil || !bytes.Equal(f.content, want) || !tc.want(f.direct) {
				t.Errorf("%d of %d bytes went past the page cache (%v)", f.direct, len(f.content), err)
			}
		})
	}
}

func isFull(a *Appender) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.full
}

// An error at any byte is returned by Append, or at the latest by Flush, and Unwritten has the bytes that are missing.
func TestError(t *testing.T) {
	want := pattern(12 << 20)
	for _, left := range []int{0, 1, 4096, 100_000, 1 << 20, 1<<20 + 77, 5 << 20, 9<<20 + 1} {
		t.Run(fmt.Sprintf("after %d bytes", left), func(t *testing.T) {
			f := newFake()
			f.left, f.err, f.content = left, unix.EIO, make([]byte, 0, len(want))
			a := on(t, f)
			at := 0
			var err error
			for err == nil && at < len(want) {
				var taken int
				taken, err = a.Append(want[at:min(len(want), at+300_001)])
				at += taken
			}
			if flushErr := a.Flush(); !errors.Is(flushErr, unix.EIO) || err != nil && !errors.Is(err, unix.EIO) {
				t.Fatalf("%v, %v", err, flushErr)
			}
			if _, err := a.Append(want[:1]); !errors.Is(err, unix.EIO) {
				t.Errorf("Append took more bytes: %v", err)
			}
			if got := slices.Concat(append([][]byte{f.content}, a.Unwritten()...)...); a.Size() != int64(left) || !bytes.Equal(got, want[:at]) {
				t.Errorf("%d bytes are there and %d in all, of %d", a.Size(), len(got), at)
			}
			f.left = 1 << 40
			if err := a.Truncate(int64(left / 2)); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Append(want[left/2:]); err != nil {
				t.Fatal(err)
			}
			if err := a.Close(); err != nil || !bytes.Equal(f.content, want) {
				t.Errorf("after a cut there are %d bytes (%v)", len(f.content), err)
			}
		})
	}
}

// Close returns an error that no earlier call has returned.
func TestErrorAtClose(t *testing.T) {
	f := newFake()
	f.left, f.err = 10, unix.EIO
	a := on(t, f)
	if _, err := a.Append(make([]byte, 11)); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// ReadAt returns all requested bytes up to Size, and beyond it an error.
func TestReadAt(t *testing.T) {
	a := on(t, newFake())
	if _, err := a.Append([]byte("content")); err != nil || a.Flush() != nil {
		t.Fatal(err, a.Flush())
	}
	b := make([]byte, 4)
	if err := a.ReadAt(b, 3); err != nil || string(b) != "tent" {
		t.Errorf("%q, %v", b, err)
	}
	if err := a.ReadAt(b, 5); !errors.Is(err, io.EOF) {
		t.Errorf("beyond the end: %v", err)
	}
}

// CPU time per MiB, and MiB per second, past the page cache and through it: go test -bench Append -run XXX
// ./agents/node/disk.
func BenchmarkAppend(b *testing.B) {
	for name, hurried := range map[string]int64{"past the page cache": 0, "through it": 1 << 62} {
		b.Run(name, func(b *testing.B) {
			f, err := Create(filepath.Join(b.TempDir(), "a"), 0o600)
			if err != nil {
				b.Fatal(err)
			}
			a, err := NewAppender(f)
			if err != nil {
				b.Fatal(err)
			}
			a.burst = hurried
			data := pattern(32 << 20)
			const each = 256 << 10
			b.SetBytes(1 << 20)
			before := cpuTime(b)
			for i := range 4 * b.N {
				if _, err := a.Append(data[i*each%len(data):][:each]); err != nil {
					b.Fatal(err)
				}
			}
			if err := a.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-us/MiB")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
