package capture

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
)

// poller is an epoll instance. A long wait uses Go's network poller, as a socket does. A goroutine that sleeps in a
// system call would make the scheduler start another thread each time, which costs a quiet capture several times its
// own work. A short wait is a system call: the runtime's timers wake a millisecond early and sleep again, which took a
// quarter of a busy capture's time. System calls that do not sleep bypass the scheduler.
type poller struct {
	fd     int
	file   *os.File // has fd
	conn   syscall.RawConn
	events [16]unix.EpollEvent
	n      int
	err    error
	ready  func(uintptr) bool
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("create epoll: %w", err), unix.Close(fd))
	}
	p := &poller{fd: fd, file: os.NewFile(uintptr(fd), "epoll")}
	p.ready = func(uintptr) bool { return p.poll() }
	if p.conn, err = p.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("create epoll: %w", err), p.close())
	}
	return p, nil
}

// add makes a descriptor end a wait when it becomes readable.
func (p *poller) add(fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("add to epoll: %w", err)
	}
	return nil
}

// remove makes later waits ignore a descriptor.
func (p *poller) remove(fd int) error {
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil); err != nil {
		return fmt.Errorf("remove from epoll: %w", err)
	}
	return nil
}

// wait returns the pending events, or waits for one, at most for timeout. They are valid until the next call.
func (p *poller) wait(timeout time.Duration) ([]unix.EpollEvent, error) {
	p.n, p.err = 0, nil
	if timeout <= backend.Interval { // while packets arrive
		n, err := unix.EpollWait(p.fd, p.events[:], int(timeout.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("wait for packets: %w", err)
		}
		return p.events[:max(n, 0)], nil
	}
	if err := p.file.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return nil, fmt.Errorf("wait for packets: %w", err)
	}
	if err := p.conn.Read(p.ready); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("wait for packets: %w", err)
	}
	return p.events[:p.n], p.err
}

// poll reads the pending events, and reports whether there are any.
func (p *poller) poll() bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), 0, 0, 0)
	switch errno {
	case 0:
		p.n = int(n)
	case unix.EINTR:
	default:
		p.err = fmt.Errorf("wait for packets: %w", errno)
	}
	return p.n > 0 || p.err != nil
}

func (p *poller) close() error { return p.file.Close() }
