package links

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// InNetNS runs fn on a thread that has entered the network namespace ns, a file descriptor. Other goroutines are not
// affected. Sockets that fn opens stay in ns. A negative ns is the caller's own namespace.
func InNetNS(ns int, fn func() error) error {
	if ns < 0 {
		return fn()
	}
	errc := make(chan error, 1)
	go func() { errc <- visit(ns, fn) }()
	return <-errc
}

// visit runs fn in the namespace on the current goroutine's thread. The thread must not serve another goroutine before
// it is back in its own namespace.
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
	// A thread that cannot return stays locked, so that it ends with this goroutine.
	if unix.Setns(home, unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}
