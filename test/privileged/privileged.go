// Package privileged is for tests that need root, or a few of its capabilities.
package privileged

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Need skips a test that runs without root. With REQUIRE_PRIVILEGED=1, which promises root, the test fails instead.
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

// RunOverlapping runs the tests of a package whose parallel tests mostly wait until the kernel has made or removed namespaces, programs
// and sockets. So as many run at a time on one processor as on many, unless -test.parallel says otherwise. Each has some 100 MiB under
// the race detector.
func RunOverlapping(m *testing.M, many int) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", strconv.Itoa(many)); err != nil {
			panic(err) // the flag is the testing package's
		}
	}
	return m.Run()
}

// RunWith runs a command with only the capabilities in keep, given by number, and no way to gain others. It returns the
// command's output. prepare, if not nil, runs on the command's thread before the thread drops the others; its effects
// on the thread end with the command.
func RunWith(tb testing.TB, cmd *exec.Cmd, keep map[uintptr]bool, prepare func() error) string {
	tb.Helper()
	var out []byte
	err := with(keep, prepare, func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// StartWith starts a command as RunWith does, and does not wait for it.
func StartWith(tb testing.TB, cmd *exec.Cmd, keep map[uintptr]bool) {
	tb.Helper()
	if err := with(keep, nil, cmd.Start); err != nil {
		tb.Fatal(err)
	}
}

// with calls run on a thread that has dropped the other capabilities.
func with(keep map[uintptr]bool, prepare, run func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread cannot regain what it drops. It stays locked, so that it ends with this goroutine.
		runtime.LockOSThread()
		if prepare != nil {
			err = prepare()
		}
		if err == nil {
			err = dropAllBut(keep)
		}
		if err == nil {
			err = run()
		}
	}()
	<-done
	return err
}

// dropAllBut drops the other capabilities from the bounding set, from which user 0 gets its capabilities on exec.
func dropAllBut(keep map[uintptr]bool) error {
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

// NetNS makes a network namespace that lives as long as its file is open, which the test closes at its end.
func NetNS(tb testing.TB) *os.File {
	tb.Helper()
	Need(tb)
	var (
		ns   *os.File
		err  error
		done = make(chan struct{})
	)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends here
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
	}()
	<-done
	if err != nil {
		tb.Fatalf("make network namespace: %v", err)
	}
	tb.Cleanup(func() { _ = ns.Close() })
	return ns
}
