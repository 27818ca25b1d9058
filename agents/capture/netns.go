package capture

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// inNetNS runs fn on a thread that has entered the network namespace ns, and leaves every other goroutine where it
// is. Sockets that fn opens stay in that namespace. A negative ns is the caller's own.
func inNetNS(ns int, fn func() error) error {
	if ns < 0 {
		return fn()
	}
	errc := make(chan error, 1)
	go func() { errc <- visit(ns, fn) }()
	return <-errc
}

// visit runs fn in the namespace on the current goroutine's thread, which must serve no other goroutine afterwards
// unless it is home again.
func visit(ns int, fn func() error) error {
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer unix.Close(home)
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace (needs CAP_SYS_ADMIN): %w", err)
	}
	err = fn()
	// A thread that cannot go home stays locked, so that it ends with this goroutine.
	if unix.Setns(home, unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}
