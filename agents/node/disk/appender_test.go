package disk_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/disk"
)

// content returns a range of every test file. Each eight bytes have their own offset, so that missing, doubled or zero
// bytes show.
func content(from, to int64) []byte {
	from, skip := from&^7, from&7
	b := make([]byte, to-from+7)
	for i := 0; i+8 <= len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], uint64(from)+uint64(i)+1<<56)
	}
	return b[skip : to-from]
}

func newAppender(t *testing.T, path string) *disk.Appender {
	t.Helper()
	f, err := disk.Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	a, err := disk.NewAppender(f)
	if err == nil {
		err = disk.Place(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// isContent checks that a file of this size has the expected content.
func isContent(t *testing.T, path string, size int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || int64(len(b)) != size {
		t.Fatalf("%d bytes, want %d (%v)", len(b), size, err)
	}
	if i := differs(b, 0); i >= 0 {
		t.Fatalf("byte %d of %d is wrong", i, size)
	}
}

// differs returns where bytes read at offset from differ from content; -1 if they are equal.
func differs(b []byte, from int64) int {
	want := content(from, from+int64(len(b)))
	if bytes.Equal(b, want) {
		return -1
	}
	for i := range b {
		if b[i] != want[i] {
			return i
		}
	}
	return -1
}

// fileSystems returns folders on file systems with and without direct writes.
func fileSystems(t *testing.T) map[string]string {
	t.Helper()
	lower := t.TempDir()
	return map[string]string{
		"ext4":                mountExt4(t, 64<<20, 4096, "data=ordered"),
		"ext4, small block":   mountExt4(t, 64<<20, 1024, "data=ordered"),
		"ext4, data journals": mountExt4(t, 64<<20, 4096, "data=journal"), // refuses direct writes
		"tmpfs":               mount(t, "tmpfs", "size=64m"),
		"overlay":             mount(t, "overlay", fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", lower, t.TempDir(), t.TempDir())),
	}
}

func mount(t *testing.T, kind, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(kind, dir, kind, 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// mountExt4 mounts an ext4 on a loop device, like a node's disk.
func mountExt4(t *testing.T, size int64, block int, options string) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-b", strconv.Itoa(block), image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs: %v: %s", err, out)
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop,"+options, image, dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// For appends of any length and flushes at any moment, the file is exactly the appended bytes. After each flush its
// size is exact.
func TestAppend(t *testing.T) {
	for name, dir := range fileSystems(t) {
		for most, size := range map[int]int64{1: 10_000, 100: 1 << 18, 5000: 5 << 20, 300_000: 12 << 20, 6 << 20: 20 << 20} {
			t.Run(fmt.Sprintf("%s, up to %d", name, most), func(t *testing.T) {
				path := filepath.Join(dir, "a")
				defer os.Remove(path)
				a := newAppender(t, path)
				at := int64(0)
				for at < size {
					n := int64(1 + rand.IntN(most))
					b := content(at, at+n)
					cut := rand.IntN(len(b) + 1)
					if taken, err := a.Append(b[:cut], b[cut:]); err != nil || taken != len(b) {
						t.Fatalf("%d of %d, %v", taken, len(b), err)
					}
					at += n
					switch rand.IntN(200) {
					case 0:
						if err := a.Flush(); err != nil || a.Size() != at || a.Pending() != 0 {
							t.Fatalf("%d bytes, %d pending of %d, %v", a.Size(), a.Pending(), at, err)
						}
						isContent(t, path, at)
					case 1, 2, 3:
						if err := a.Push(); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := a.Close(); err != nil || a.Size() != at {
					t.Fatalf("%d bytes of %d, %v", a.Size(), at, err)
				}
				isContent(t, path, at)
			})
		}
	}
}

// cut divides b into n runs of any length.
func cut(b []byte, n int) [][]byte {
	var runs [][]byte
	for range n - 1 {
		at := rand.IntN(len(b) + 1)
		runs, b = append(runs, b[:at]), b[at:]
	}
	return append(runs, b)
}

// A test with more runs than one system call takes.
func TestAppendManyRuns(t *testing.T) {
	for name, dir := range fileSystems(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "a")
			a := newAppender(t, path)
			all := content(0, 9<<20)
			runs := append(slices.Collect(slices.Chunk(all, 4096)), nil)
			if taken, err := a.Append(runs...); err != nil || taken != len(all) {
				t.Fatalf("%d of %d, %v", taken, len(all), err)
			}
			if err := a.Flush(); err != nil {
				t.Fatal(err)
			}
			isContent(t, path, int64(len(all)))
		})
	}
}

// Readers of a growing file find all bytes up to Size, and only appended bytes: no old page, no zeros. Several read at
// once: at the end, beyond it, and the last part again.
func TestReadWhileItIsWritten(t *testing.T) {
	for name, dir := range fileSystems(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "a")
			a := newAppender(t, path)
			stop := make(chan struct{})
			var readers sync.WaitGroup
			for _, again := range []bool{false, false, true} {
				readers.Go(func() { follow(t, path, a, again, stop) })
			}
			const size = 20 << 20
			for at := int64(0); at < size; {
				n := int64(1 + rand.IntN(200_000))
				if _, err := a.Append(content(at, at+n)); err != nil {
					t.Error(err)
					break
				}
				at += n
				flush := a.Push
				if rand.IntN(5) == 0 {
					flush = a.Flush
				}
				if err := flush(); err != nil {
					t.Error(err)
					break
				}
			}
			close(stop)
			readers.Wait()
		})
	}
}

// follow reads a file's end, or its last part again.
func follow(t *testing.T, path string, a *disk.Appender, again bool, stop chan struct{}) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	b := make([]byte, 200_000)
	for at := int64(0); ; {
		select {
		case <-stop:
			return
		default:
		}
		size := a.Size()
		n, err := f.ReadAt(b, at)
		if i := differs(b[:n], at); i >= 0 || err != nil && err != io.EOF {
			t.Errorf("byte %d of %d is wrong (%v)", at+int64(i), at+int64(n), err)
			return
		}
		if at+int64(n) < min(size, at+int64(len(b))) {
			t.Errorf("%d bytes are there, Size returned %d", at+int64(n), size)
			return
		}
		if at += int64(n); again {
			at = max(0, at-int64(rand.IntN(100_000)))
		}
	}
}

// A file on a disk is written past the page cache, so that nothing of it is there.
func TestPastThePageCache(t *testing.T) {
	f, err := disk.Create(filepath.Join(mountExt4(t, 64<<20, 4096, "data=ordered"), "a"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	a, err := disk.NewAppender(f)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	const size = 20 << 20
	for _, n := range []int{size / 4, size / 4, size / 4, size/4 + 10} { // less than the buffer, so that a slow disk has no effect
		if _, err := a.Append(make([]byte, n)); err != nil || a.Flush() != nil {
			t.Fatal(err, a.Flush())
		}
	}
	m, err := unix.Mmap(int(f.Fd()), 0, size+10, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	pages := make([]byte, size/os.Getpagesize()+1)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Fatal(errno)
	}
	cached := 0
	for _, p := range pages {
		cached += int(p & 1)
	}
	if cached != 1 { // the last one
		t.Errorf("%d of %d pages are in the page cache", cached, len(pages))
	}
}

// On a full disk Size is right, Unwritten has the rest, and after Truncate appending works again.
func TestFullDisk(t *testing.T) {
	for name, dir := range map[string]string{
		"ext4":              mountExt4(t, 8<<20, 4096, "data=ordered"),
		"ext4, small block": mountExt4(t, 8<<20, 1024, "data=ordered"),
		"tmpfs":             mount(t, "tmpfs", "size=7m"),
		"tmpfs, odd":        mount(t, "tmpfs", "size=1100k"),
	} {
		for _, most := range []int{3000, 70_000, 3 << 20} {
			t.Run(fmt.Sprintf("%s, up to %d", name, most), func(t *testing.T) {
				path := filepath.Join(dir, "a")
				defer os.Remove(path)
				a := newAppender(t, path)
				var err error
				var at int64
				for err == nil {
					n := int64(1 + rand.IntN(most))
					var taken int
					if taken, err = a.Append(cut(content(at, at+n), 5)...); err == nil && rand.IntN(10) == 0 {
						err = a.Push()
					}
					at += int64(taken)
				}
				if !disk.IsFull(err) || !disk.IsFull(a.Flush()) {
					t.Fatalf("%v, %v", err, a.Flush())
				}
				size := a.Size()
				isContent(t, path, size)
				if rest := slices.Concat(a.Unwritten()...); differs(rest, size) >= 0 || size+int64(len(rest)) != at || a.Pending() != int64(len(rest)) {
					t.Errorf("%d bytes are there and %d are left, of %d", size, len(rest), at)
				}
				_, free, err := disk.Space(dir)
				if err != nil || free > 64<<10 {
					t.Errorf("%d bytes are free on a disk that was full (%v)", free, err)
				}
				// Appending continues after a truncation to any size.
				size -= 10_001
				if err := a.Truncate(size); err != nil {
					t.Fatal(err)
				}
				back := make([]byte, 100)
				if err := a.ReadAt(back, size-100); err != nil || differs(back, size-100) >= 0 {
					t.Errorf("the written bytes read differently (%v)", err)
				}
				if _, err := a.Append(content(size, size+5000)); err != nil {
					t.Fatal(err)
				}
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
				isContent(t, path, size+5000)
			})
		}
	}
}

func TestTruncateAddsNothing(t *testing.T) {
	a := newAppender(t, filepath.Join(t.TempDir(), "a"))
	if _, err := a.Append(content(0, 100)); err != nil {
		t.Fatal(err)
	}
	if err := a.Truncate(100); err == nil {
		t.Error("a file was cut to more than it has")
	}
	if err := a.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := a.Truncate(0); err != nil || a.Size() != 0 || a.Pending() != 0 {
		t.Errorf("%d bytes, %v", a.Size(), err)
	}
}

// appendDir, in the environment, makes TestAppenderToBeKilled a process that appends to a file in this folder for ever.
const appendDir = "SONDE_TEST_APPEND_DIR"

// TestAppenderToBeKilled is not a test by itself: TestKilledWhileItAppends runs it in a child process.
func TestAppenderToBeKilled(t *testing.T) {
	dir := os.Getenv(appendDir)
	if dir == "" {
		return
	}
	a := newAppender(t, filepath.Join(dir, "a"))
	for at := int64(0); ; {
		n := int64(1 + rand.IntN(300_000))
		if _, err := a.Append(content(at, at+n)); err != nil {
			t.Fatal(err)
		}
		at += n
		if rand.IntN(20) == 0 {
			if err := a.Push(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Whenever the process is killed, the file is the beginning of the appended bytes.
func TestKilledWhileItAppends(t *testing.T) {
	for range 15 {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAppenderToBeKilled$")
		cmd.Env = append(os.Environ(), appendDir+"="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		path, most := filepath.Join(dir, "a"), int64(rand.IntN(20<<20))
		for {
			if info, err := os.Stat(path); err == nil && info.Size() > most {
				break
			}
			time.Sleep(time.Millisecond)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed, as intended
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		isContent(t, path, info.Size())
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
