package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// DefaultGrace is how long a Pod may be without a process: time for a container to be started again where the
	// runtime keeps no sandbox process (CRI-O's drop_infra_ctr).
	DefaultGrace = 2 * time.Second

	rescan = 100 * time.Millisecond
	// maxWatched bounds the handles on one Pod. When the oldest so many have ended, the rest is looked up anew.
	maxWatched = 16
)

// GoneReason says how a Pod left.
type GoneReason string

// The ways for a Pod to leave the node.
const (
	// GoneNoProcess means that no process of the Pod is left.
	GoneNoProcess GoneReason = "NoProcess"
	// GoneNewSandbox means that the Pod still runs, but in another network namespace than the one that was watched.
	GoneNewSandbox GoneReason = "NewSandbox"
)

// Watcher notices when a Pod has left the node. A container that starts again is no departure while the sandbox lives,
// nor within the grace.
type Watcher struct {
	Finder Finder
	// UID is the Pod's.
	UID string
	// NetNS is the inode of the network namespace that matters; zero is any.
	NetNS uint64
	// Grace is DefaultGrace if zero.
	Grace time.Duration
}

// Wait returns when the Pod is gone, or with the context's error. A Pod that was never there is gone after the grace.
func (w *Watcher) Wait(ctx context.Context) (GoneReason, error) {
	for {
		procs, reason, err := w.settle(ctx)
		if err != nil {
			return "", err
		}
		if len(procs) == 0 {
			return reason, nil
		}
		for _, p := range procs[:min(len(procs), maxWatched)] {
			if err := w.awaitExit(ctx, p); err != nil {
				return "", err
			}
		}
	}
}

// settle returns the Pod's processes, or none when there were none for the whole grace.
func (w *Watcher) settle(ctx context.Context) ([]Process, GoneReason, error) {
	grace := w.Grace
	if grace == 0 {
		grace = DefaultGrace
	}
	over := time.NewTimer(grace)
	defer over.Stop()
	again := time.NewTicker(rescan)
	defer again.Stop()
	for {
		procs, reason, err := w.scan()
		if err != nil || len(procs) > 0 {
			return procs, "", err
		}
		select {
		case <-ctx.Done():
			return nil, "", ctx.Err()
		case <-over.C:
			return nil, reason, nil
		case <-again.C:
		}
	}
}

// scan returns the Pod's processes in the namespace that matters, and why there is none.
func (w *Watcher) scan() ([]Process, GoneReason, error) {
	all, err := w.Finder.Pod(w.UID)
	if err != nil {
		return nil, "", err
	}
	if w.NetNS == 0 {
		return all, GoneNoProcess, nil
	}
	var here []Process
	reason := GoneNoProcess
	for _, p := range all {
		ino, err := w.Finder.netInode(p.PID)
		switch {
		case err != nil:
			if err := ignoreGone(err); err != nil {
				return nil, "", err
			}
		case ino == w.NetNS:
			here = append(here, p)
		default:
			reason = GoneNewSandbox
		}
	}
	return here, reason, nil
}

// awaitExit returns nil when the process has ended.
func (w *Watcher) awaitExit(ctx context.Context, p Process) error {
	fd, err := openPidfd(p.PID)
	if errors.Is(err, ErrNoProcess) {
		return nil
	}
	if err != nil {
		return err
	}
	// A descriptor that does not block is waited for by the runtime's poller, which is an epoll.
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if now, ok, err := w.Finder.process(p.PID, w.UID); err != nil || !ok || now != p {
		return err // the number has passed to another process, or is about to
	}
	return awaitReadable(ctx, f)
}

func awaitReadable(ctx context.Context, f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for process: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var perr error
	err = conn.Read(func(fd uintptr) bool {
		var done bool
		done, perr = exited(int(fd))
		return done || perr != nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err = errors.Join(err, perr); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("wait for process: %w", err)
	}
	return nil
}
