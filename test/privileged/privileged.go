// Package privileged is for tests that need what only root may do: all of it, or a part.
package privileged

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Need skips a test that runs without root, or fails it where root is promised (REQUIRE_PRIVILEGED=1).
func Need(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("REQUIRE_PRIVILEGED") == "1" {
		tb.Fatal("this test needs root, and REQUIRE_PRIVILEGED=1 promises it")
	}
	tb.Skip("needs root")
}

// RunWith runs a command with some capabilities alone, by their numbers, and no way to others, and returns what it says.
// prepare, if not nil, is called on the command's thread before it gives the others up; what it does to the thread goes with
// the command.
func RunWith(tb testing.TB, cmd *exec.Cmd, keep map[uintptr]bool, prepare func() error) string {
	tb.Helper()
	var (
		out  []byte
		err  error
		done = make(chan struct{})
	)
	go func() {
		defer close(done)
		// What the thread gives up it never gets back: it stays locked, and ends with this goroutine.
		runtime.LockOSThread()
		if prepare != nil {
			err = prepare()
		}
		if err == nil {
			err = giveUpAllBut(keep)
		}
		if err == nil {
			out, err = cmd.CombinedOutput()
		}
	}()
	<-done
	if err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// giveUpAllBut takes the other capabilities from what the thread will execute: user 0 gets those of the bounding set.
func giveUpAllBut(keep map[uintptr]bool) error {
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if keep[c] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("allow no new privileges: %w", err)
	}
	return nil
}
