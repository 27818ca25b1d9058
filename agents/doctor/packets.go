package doctor

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture"
)

// inNewNetNS runs fn in a network namespace that nobody else is in, and which is gone with it: whatever is attached
// there meets nobody's packets.
func inNewNetNS(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil { // as attempt.check does, which is not on this goroutine
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

// packetsBy tries the engine itself, at tcx or clsact.
func packetsBy(way string) func() error {
	return func() error {
		return inNewNetNS(func() error { return capture.Try(way) })
	}
}
