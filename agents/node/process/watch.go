package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// DefaultGrace is how long a Pod may be without a process: time to restart a container if the runtime keeps no sandbox
	// process (CRI-O's drop_infra_ctr).
	DefaultGrace = 2 * time.Second

	rescan = 100 * time.Millisecond
	// maxWatched bounds the open descriptors for one Pod. When the oldest processes have ended, the others are listed again.
	maxWatched = 16
)

// GoneReason is why a Pod is gone.
type GoneReason string

// Reasons.
const (
	// GoneNoProcess means that no process of the Pod is left.
	GoneNoProcess GoneReason = "NoProcess"
	// GoneNewSandbox means that the Pod still runs, but in another network namespace than the watched one.
	GoneNewSandbox GoneReason = "NewSandbox"

	// notGone means that a process which cannot be read may be the Pod's, or that the runtime keeps the Pod's network namespace:
	// a container that has crashed waits for its restart.
	notGone GoneReason = ""
)

// Watcher waits until a Pod is gone from the node. A container may restart while the sandbox lives, or within the grace
// period. The sandbox lives while one of its processes does, or while the runtime keeps its network namespace mounted.
type Watcher struct {
	Finder Finder
	// UID is the Pod's.
	UID string
	// NetNS is the inode of the network namespace to watch; zero is any. A process in a namespace that it has made itself still
	// counts, where the node tells which ones the runtime has made.
	NetNS uint64
	// Grace is DefaultGrace if zero. It is at most that where the runtime has mounted the network namespace.
	Grace time.Duration

	pin pin // of NetNS
}

// Wait returns when the Pod is gone, or with the context's error. A Pod that never had a process is gone after the grace
// period.
func (w *Watcher) Wait(ctx context.Context) (GoneReason, error) {
	w.pin = w.Finder.pinOf(w.NetNS)
	for {
		procs, reason, err := w.list(ctx)
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

// list returns the Pod's processes, or none if there were none for the whole grace period.
func (w *Watcher) list(ctx context.Context) ([]Process, GoneReason, error) {
	grace := cmp.Or(w.Grace, DefaultGrace)
	if w.pin != (pin{}) {
		grace = min(grace, DefaultGrace)
	}
	timeout := time.NewTimer(grace)
	defer timeout.Stop()
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
		case <-timeout.C:
			if reason != notGone {
				return nil, reason, nil
			}
			timeout.Reset(grace)
		case <-again.C:
		}
	}
}

// scan returns the Pod's processes in the watched namespace, or why there are none.
func (w *Watcher) scan() ([]Process, GoneReason, error) {
	all, unreadable, err := w.Finder.search(w.UID)
	if err != nil {
		return nil, "", err
	}
	if w.NetNS == 0 {
		if len(unreadable) > 0 {
			return all, notGone, nil
		}
		return all, GoneNoProcess, nil
	}
	var here []Process
	reason := GoneNoProcess
	ours := w.namespaces()
	for _, p := range all {
		switch ok, err := ours(p.PID); {
		case err != nil:
			if err := ignoreGone(err); err != nil {
				return nil, "", err
			}
		case ok:
			here = append(here, p)
		default:
			reason = GoneNewSandbox
		}
	}
	for _, pid := range unreadable {
		if ok, err := ours(pid); ok && err == nil {
			reason = notGone
		}
	}
	if reason == GoneNoProcess && len(here) == 0 && w.Finder.mounted(w.pin) {
		reason = notGone
	}
	return here, reason, nil
}

// namespaces returns a function that reports whether a process of the Pod may have sockets in the watched namespace: it is in
// it, or in one that it has made itself.
func (w *Watcher) namespaces() func(pid int) (bool, error) {
	made := w.Finder.madeByRuntime()
	node, _ := w.Finder.statNetNS("1") // without it, a process in it counts as one of a new sandbox, too
	return func(pid int) (bool, error) {
		st, err := w.Finder.statNetNS(strconv.Itoa(pid))
		return err == nil && (st.Ino == w.NetNS || made != nil && !made[st.Ino] && st.Ino != node.Ino), err
	}
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
	// Go's network poller waits for a non-blocking descriptor, without a thread.
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if now, ok, err := w.Finder.process(p.PID, w.UID); err != nil || !ok || now != p {
		return nil // the process has ended or cannot be read any more: the next search tells
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
