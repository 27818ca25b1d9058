package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Handle refers to one process by a pidfd. Its methods never reach another process that later gets the same PID.
type Handle struct {
	Process Process

	finder Finder
	pidfd  int
}

// Hold opens a handle on a process of the Pod that was found before. It returns ErrNoProcess if that process has ended, even
// if another one has its PID now.
func (f Finder) Hold(uid string, p Process) (*Handle, error) {
	fd, err := openPidfd(p.PID)
	if err != nil {
		return nil, err
	}
	h := &Handle{Process: p, finder: f, pidfd: fd}
	// Read the process after opening the pidfd: if the PID still belongs to it, the pidfd does, too.
	now, ok, err := f.process(p.PID, uid)
	if err == nil && (!ok || now != p) {
		err = h.gone()
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Close closes the pidfd.
func (h *Handle) Close() error { return unix.Close(h.pidfd) }

// Program returns the path of the process's executable in its own file system, and the name of its first thread, which the process
// can change. If the process ends meanwhile, it returns ErrNoProcess.
//
// The arguments would say more. But they are in the process's memory, which may be a file of FUSE whose server never answers: their
// reader could not even be killed.
func (h *Handle) Program() (executable, name string, err error) {
	executable, err = os.Readlink(h.finder.path(h.Process.PID, "exe"))
	if err != nil {
		return "", "", h.readError(err)
	}
	b, err := os.ReadFile(h.finder.path(h.Process.PID, "comm"))
	if err != nil {
		return "", "", h.readError(err)
	}
	ended, err := exited(h.pidfd)
	if err != nil {
		return "", "", err
	}
	if ended {
		return "", "", h.gone()
	}
	return executable, strings.TrimSuffix(string(b), "\n"), nil
}

func (h *Handle) readError(err error) error {
	if ignoreGone(err) == nil {
		return h.gone()
	}
	return fmt.Errorf("read program of process %d (needs CAP_SYS_PTRACE): %w", h.Process.PID, err)
}

func (h *Handle) gone() error { return fmt.Errorf("process %d: %w", h.Process.PID, ErrNoProcess) }

// Signal sends a signal. It returns ErrNoProcess if the process has ended.
func (h *Handle) Signal(s unix.Signal) error {
	err := unix.PidfdSendSignal(h.pidfd, s, nil, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return h.gone()
	case err != nil:
		return fmt.Errorf("send %s to process %d (needs CAP_KILL): %w", unix.SignalName(s), h.Process.PID, err)
	}
	return nil
}

// Ended waits for the end of the process, at least a millisecond and at most d, and reports whether the process has ended.
func (h *Handle) Ended(ctx context.Context, d time.Duration) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(h.pidfd), Events: unix.POLLIN}}, max(int(d.Milliseconds()), 1))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("poll process: %w", err)
	}
	return n > 0, nil
}
