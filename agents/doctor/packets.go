package doctor

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture"
)

// inNewNetNS runs fn in a new network namespace, which is deleted afterwards: programs that are attached there get no
// packets.
func inNewNetNS(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil { // attempt.check recovers only its own goroutine
				done <- fmt.Errorf("%v", p)
			}
		}()
		runtime.LockOSThread() // for good: the thread ends with this goroutine, and the namespace with the thread
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("make a network namespace (needs CAP_SYS_ADMIN): %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// packetsBy returns a check of the capture engine at tcx or clsact.
func packetsBy(hook string) func() error {
	return func() error {
		return inNewNetNS(func() error { return capture.Try(hook) })
	}
}
