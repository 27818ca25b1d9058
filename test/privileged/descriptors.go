package privileged

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// crowd are the open files by which tests hold a lock: packages are tested at the same time. Tests that would disturb scans of the
// node's files have it alone, and tests with such scans share it.
var crowd = struct {
	sync.Mutex
	of map[testing.TB]*os.File
}{of: map[testing.TB]*os.File{}}

// AloneWithScans waits until no test of another package disturbs scans of the node's files, and keeps them from that until the test
// ends.
func AloneWithScans(tb testing.TB) {
	tb.Helper()
	lockCrowd(tb, unix.LOCK_SH)
}

func lockCrowd(tb testing.TB, how int) {
	tb.Helper()
	f := crowdOf(tb)
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			tb.Fatal(err)
		}
	}
}

// crowdOf returns the file that a test locks. The lock ends with the test.
func crowdOf(tb testing.TB) *os.File {
	tb.Helper()
	crowd.Lock()
	defer crowd.Unlock()
	if f := crowd.of[tb]; f != nil {
		return f
	}
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "sonde-descriptors.lock"), os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		tb.Fatal(err)
	}
	crowd.of[tb] = f
	tb.Cleanup(func() {
		crowd.Lock()
		defer crowd.Unlock()
		delete(crowd.of, tb)
		_ = f.Close()
	})
	return f
}

// RegisterFiles waits for tests that are AloneWithScans, and keeps others from that until the test ends. A process of the test
// registers files with an io_uring, and a capture in a test takes each process of the node for one of its Pod.
func RegisterFiles(tb testing.TB) {
	tb.Helper()
	lockCrowd(tb, unix.LOCK_EX)
}

// Descriptors starts processes, with consecutive PIDs if no other process starts, that hold n descriptors of /dev/null together
// until the test ends. Each holds as many as this process may have, but at most 100,000. It waits for tests that are
// AloneWithScans.
func Descriptors(tb testing.TB, n int) {
	tb.Helper()
	lockCrowd(tb, unix.LOCK_EX)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		tb.Fatal(err)
	}
	each := int(min(limit.Cur-200, 100_000)) // the test itself has some
	null, err := os.Open(os.DevNull)
	if err != nil {
		tb.Fatal(err)
	}
	defer null.Close()
	inherited := make([]int, each)
	for i := range inherited {
		if inherited[i], err = unix.Dup(int(null.Fd())); err != nil {
			tb.Fatal(err)
		}
	}
	Heirs(tb, (n+each-1)/each, inherited)
}

// Heirs starts processes that hold the same descriptors as this one, which lack FD_CLOEXEC, until the test ends. It closes the
// descriptors here.
func Heirs(tb testing.TB, processes int, inherited []int) {
	tb.Helper()
	defer func() {
		for _, fd := range inherited {
			_ = unix.Close(fd)
		}
	}()
	in, end, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	defer in.Close()
	var heirs []*exec.Cmd
	tb.Cleanup(func() {
		_ = end.Close()
		for _, h := range heirs {
			_ = h.Wait()
		}
	})
	for range processes {
		h := exec.CommandContext(tb.Context(), "cat") // until the pipe ends
		h.Stdin = in
		if err := h.Start(); err != nil {
			tb.Fatal(err)
		}
		heirs = append(heirs, h)
	}
}
