package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Handle holds on to one process by a pidfd: whatever is asked of it is asked of that process or of nobody, also when
// its number has passed to another one.
type Handle struct {
	Process Process

	finder Finder
	pidfd  int
}

// Hold opens a handle on a process of the Pod that was found before. It returns ErrNoProcess if that process has ended,
// also when its number belongs to another one by now.
func (f Finder) Hold(uid string, p Process) (*Handle, error) {
	fd, err := openPidfd(p.PID)
	if err != nil {
		return nil, err
	}
	h := &Handle{Process: p, finder: f, pidfd: fd}
	// Asked after the pidfd was opened: if the number is still the process's, the pidfd is.
	now, ok, err := f.process(p.PID, uid)
	if err == nil && (!ok || now != p) {
		err = h.gone()
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Close lets go of the process.
func (h *Handle) Close() error { return unix.Close(h.pidfd) }

// Program returns the path of the process's executable, as seen in its own file system, and its arguments, the name
// first. What is read about a process that has ended meanwhile is thrown away (ErrNoProcess).
func (h *Handle) Program() (executable string, args []string, err error) {
	executable, err = os.Readlink(h.finder.path(h.Process.PID, "exe"))
	if err != nil {
		return "", nil, h.unread(err)
	}
	b, err := os.ReadFile(h.finder.path(h.Process.PID, "cmdline"))
	if err != nil {
		return "", nil, h.unread(err)
	}
	over, err := exited(h.pidfd)
	if err != nil {
		return "", nil, err
	}
	if over {
		return "", nil, h.gone()
	}
	for arg := range bytes.SplitSeq(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
		args = append(args, string(arg))
	}
	return executable, args, nil
}

func (h *Handle) unread(err error) error {
	if ignoreGone(err) == nil {
		return h.gone()
	}
	return fmt.Errorf("read program of process %d (needs CAP_SYS_PTRACE): %w", h.Process.PID, err)
}

func (h *Handle) gone() error { return fmt.Errorf("process %d: %w", h.Process.PID, ErrNoProcess) }

// Signal sends a signal; ErrNoProcess if the process has ended.
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

// Ended waits for the end of the process, for a millisecond at least and d at most, and tells whether it has come.
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
