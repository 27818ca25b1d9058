package privileged

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// crowd is locked by tests that fill the node with descriptors, and shared by those whose time that would take: packages are
// tested at the same time.
var crowd *os.File

// AloneWithScans waits until no test of another package fills the node with descriptors, and keeps them from that until the test ends.
func AloneWithScans(tb testing.TB) {
	tb.Helper()
	lockCrowd(tb, unix.LOCK_SH)
}

func lockCrowd(tb testing.TB, how int) {
	tb.Helper()
	if crowd == nil {
		f, err := os.OpenFile(filepath.Join(os.TempDir(), "sonde-descriptors.lock"), os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			tb.Fatal(err)
		}
		crowd = f
	}
	for {
		err := unix.Flock(int(crowd.Fd()), how)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			tb.Fatal(err)
		}
	}
	tb.Cleanup(func() { _ = unix.Flock(int(crowd.Fd()), unix.LOCK_UN) })
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
