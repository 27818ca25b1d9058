package privileged

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// Descriptors starts processes, with consecutive PIDs if no other process starts, that hold n descriptors of /dev/null together
// until the test ends. Each holds as many as this process may have, but at most 100,000.
func Descriptors(tb testing.TB, n int) {
	tb.Helper()
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
	var inherited []int
	defer func() {
		for _, fd := range inherited {
			_ = unix.Close(fd)
		}
	}()
	for range each {
		fd, err := unix.Dup(int(null.Fd())) // without FD_CLOEXEC
		if err != nil {
			tb.Fatal(err)
		}
		inherited = append(inherited, fd)
	}
	in, end, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	defer in.Close()
	var holders []*exec.Cmd
	tb.Cleanup(func() {
		_ = end.Close()
		for _, h := range holders {
			_ = h.Wait()
		}
	})
	for held := 0; held < n; held += each {
		h := exec.Command("cat") // until the pipe ends
		h.Stdin = in
		if err := h.Start(); err != nil {
			tb.Fatal(err)
		}
		holders = append(holders, h)
	}
}
