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
	// ownRescan is how often the watcher looks for a new sandbox while all of the Pod's processes are in network namespaces that they
	// have made themselves.
	ownRescan = time.Second
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

	// notGone means that the Pod has processes, that one which cannot be read may be the Pod's, or that the runtime keeps the Pod's
	// network namespace: a container that has crashed waits for its restart.
	notGone GoneReason = ""
)

// Watcher waits until a Pod is gone from the node. A container may restart while the sandbox lives, or within the grace
// period. The sandbox lives while one of its processes does, or while the runtime keeps its network namespace mounted.
type Watcher struct {
	Finder Finder
	// UID is the Pod's.
	UID string
	// NetNS is the inode of the network namespace to watch; zero is any. The caller keeps it open, or another namespace may get
	// the number. A process in a namespace that it has made itself still counts, where the node tells which ones the runtime has
	// made, unless the Pod has a new sandbox.
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
		now, err := w.list(ctx)
		if err != nil {
			return "", err
		}
		if len(now.procs) == 0 {
			return now.reason, nil
		}
		if err := w.awaitChange(ctx, &now); err != nil {
			return "", err
		}
	}
}

// list returns the Pod's processes, or none if there were none for the whole grace period.
func (w *Watcher) list(ctx context.Context) (state, error) {
	grace := cmp.Or(w.Grace, DefaultGrace)
	if w.pin != (pin{}) {
		grace = min(grace, DefaultGrace)
	}
	timeout := time.NewTimer(grace)
	defer timeout.Stop()
	again := time.NewTicker(rescan)
	defer again.Stop()
	for {
		now, err := w.scan()
		if err != nil || len(now.procs) > 0 {
			return now, err
		}
		select {
		case <-ctx.Done():
			return state{}, ctx.Err()
		case <-timeout.C:
			if now.reason != notGone {
				return now, nil
			}
			timeout.Reset(grace)
		case <-again.C:
		}
	}
}

// awaitChange returns nil when the oldest processes have ended.
func (w *Watcher) awaitChange(ctx context.Context, now *state) error {
	if now.own {
		return w.awaitOwn(ctx, now.procs[0])
	}
	for _, p := range now.procs[:min(len(now.procs), maxWatched)] {
		if err := w.awaitExit(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// awaitOwn returns nil when a process in a namespace of its own has ended, or when the Pod may have a new sandbox: the runtime does
// not keep the watched namespace. A scan would take more of the node's time.
func (w *Watcher) awaitOwn(ctx context.Context, p Process) error {
	tick := time.NewTicker(ownRescan)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now, ok, err := w.Finder.process(p.PID, w.UID)
		if err != nil || !ok || now != p || !w.Finder.mounted(w.pin) {
			return nil // the next search tells
		}
	}
}

// state is what a scan has found.
type state struct {
	// procs keep the Pod. They are in the watched namespace; if none is, they are in namespaces that they have made themselves.
	procs []Process
	own   bool
	// reason says why there are none.
	reason GoneReason
}

// scan looks at all processes of the node.
func (w *Watcher) scan() (state, error) {
	all, unreadable, err := w.Finder.search(w.UID)
	if err != nil {
		return state{}, err
	}
	if w.NetNS == 0 {
		now := state{procs: all, reason: GoneNoProcess}
		if len(unreadable) > 0 {
			now.reason = notGone
		}
		return now, nil
	}
	found, hidden := map[place][]Process{}, map[place]bool{}
	placeOf := w.places()
	for _, p := range all {
		at, err := placeOf(p.PID)
		if err == nil {
			found[at] = append(found[at], p)
		} else if err := ignoreGone(err); err != nil {
			return state{}, err
		}
	}
	for _, pid := range unreadable {
		if at, err := placeOf(pid); err == nil {
			hidden[at] = true
		}
	}
	return w.judge(found, hidden), nil
}

// judge decides by where the Pod's processes are, and those that cannot be read. While the runtime keeps the watched namespace, a
// process in a namespace of its own may still have sockets there, and one in another Pod's may have entered it.
func (w *Watcher) judge(found map[place][]Process, hidden map[place]bool) state {
	switch {
	case len(found[inWatched]) > 0:
		return state{procs: found[inWatched]}
	case len(found[inSandbox]) > 0 && !hidden[inWatched] && !w.Finder.mounted(w.pin):
		return state{reason: GoneNewSandbox}
	case len(found[inOwn]) > 0:
		return state{procs: found[inOwn], own: true}
	case hidden[inWatched] || hidden[inOwn]:
		return state{reason: notGone}
	case len(found[inSandbox])+len(found[elsewhere]) > 0:
		return state{reason: GoneNewSandbox}
	case w.Finder.mounted(w.pin):
		return state{reason: notGone}
	}
	return state{reason: GoneNoProcess}
}

// place says in which network namespace a process is.
type place uint8

const (
	inWatched place = iota
	// inOwn is a namespace that neither the runtime has made nor the node has.
	inOwn
	// inSandbox is another namespace that the runtime has made.
	inSandbox
	// elsewhere is the node's namespace, in which processes start. It is any other than the watched one where the node does not tell
	// which ones the runtime has made, or where the Pod is on the node's network, which no new sandbox replaces.
	elsewhere
)

// places returns a function that says where a process is.
func (w *Watcher) places() func(pid int) (place, error) {
	made := w.Finder.madeByRuntime()
	node, _ := w.Finder.statNetNS("1") // without it, the node's namespace counts as one of a process's own
	return func(pid int) (place, error) {
		st, err := w.Finder.statNetNS(strconv.Itoa(pid))
		switch {
		case err != nil:
			return elsewhere, err
		case st.Ino == w.NetNS:
			return inWatched, nil
		case made != nil && !made[st.Ino] && st.Ino != node.Ino:
			return inOwn, nil
		case made[st.Ino] && w.NetNS != node.Ino:
			return inSandbox, nil
		}
		return elsewhere, nil
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
