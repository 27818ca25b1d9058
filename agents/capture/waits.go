package capture

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waits is an epoll instance. A long wait is one of Go's runtime, as for a socket: a goroutine that sleeps in a system call has
// the scheduler look after its thread, and another thread take its place, each time, which costs a quiet capture several times what
// it does itself. A short one is a system call: the runtime's timers wake a millisecond early, to sleep again, which a
// quarter of a busy capture's time went into. The calls that a look consists of, none of which sleeps, are not announced
// to the scheduler.
type waits struct {
	fd     int
	file   *os.File // of fd
	conn   syscall.RawConn
	events [16]unix.EpollEvent
	n      int
	err    error
	look   func(uintptr) bool
}

func newWaits() (*waits, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("create epoll: %w", err), unix.Close(fd))
	}
	w := &waits{fd: fd, file: os.NewFile(uintptr(fd), "epoll")}
	w.look = func(uintptr) bool { return w.now() }
	if w.conn, err = w.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("create epoll: %w", err), w.close())
	}
	return w, nil
}

// add has a descriptor end a wait when it can be read.
func (w *waits) add(fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("add to epoll: %w", err)
	}
	return nil
}

// remove takes a descriptor out of what a wait waits for.
func (w *waits) remove(fd int) error {
	if err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, fd, nil); err != nil {
		return fmt.Errorf("remove from epoll: %w", err)
	}
	return nil
}

// wait returns what there is, at once or when there is something, at most after so long. It is valid until the next call.
func (w *waits) wait(most time.Duration) ([]unix.EpollEvent, error) {
	w.n, w.err = 0, nil
	if most <= pollEvery { // while packets come
		n, err := unix.EpollWait(w.fd, w.events[:], int(most.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("wait for packets: %w", err)
		}
		return w.events[:max(n, 0)], nil
	}
	if err := w.file.SetReadDeadline(time.Now().Add(most)); err != nil {
		return nil, fmt.Errorf("wait for packets: %w", err)
	}
	if err := w.conn.Read(w.look); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("wait for packets: %w", err)
	}
	return w.events[:w.n], w.err
}

// now looks what there is, and reports whether there is something.
func (w *waits) now() bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(w.fd), uintptr(unsafe.Pointer(&w.events[0])), uintptr(len(w.events)), 0, 0, 0)
	switch errno {
	case 0:
		w.n = int(n)
	case unix.EINTR:
	default:
		w.err = fmt.Errorf("wait for packets: %w", errno)
	}
	return w.n > 0 || w.err != nil
}

func (w *waits) close() error { return w.file.Close() }

// now reads a clock in nanoseconds.
func now(clock int32) uint64 {
	var ts unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0 // only possible for a clock that does not exist
	}
	return uint64(ts.Nano())
}
