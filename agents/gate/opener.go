package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// ErrNoGate is returned where a Pod has no gate that waits on this node: not yet, or not any more.
var ErrNoGate = errors.New("no gate of the pod waits on this node")

// ErrStuck is returned where a gate does not end, as when it was stopped or its cgroup is frozen.
var ErrStuck = errors.New("the gate does not end")

const (
	// interval between two signals. A signal that is lost costs the Pod so much of its start.
	interval = 2 * time.Millisecond
	// search is the least time between two looks for a gate, each of which reads the cgroup of every process of the node:
	// idle times as much as a look takes lies between two, and searchLate once they have gone on for searchFor. A gate comes
	// with its Pod, or late, after its image.
	search     = 10 * time.Millisecond
	idle       = 4
	searchFor  = time.Minute
	searchLate = time.Second
	// DefaultPatience is how long a gate is signalled.
	DefaultPatience = 10 * time.Second
)

// Opener opens gates from the node's process namespace. It needs the capabilities KILL and SYS_PTRACE.
type Opener struct {
	Finder process.Finder
	// Executable of the gate, as its container sees it; gateconfig.Executable if empty.
	Executable string
	// Patience with one gate; DefaultPatience if zero.
	Patience time.Duration
}

// Open opens the gate of a Pod and returns how long that took, from the first signal to the end of its process: the
// Pod's next container starts only after it. It signals processes of the Pod's cgroup that are the gate by executable
// and arguments, and nothing else. ErrNoGate says that there is none.
func (o Opener) Open(ctx context.Context, podUID string) (time.Duration, error) {
	procs, err := o.Finder.Pod(podUID)
	if err != nil {
		return 0, err
	}
	began, open := time.Now(), false
	for _, p := range procs {
		was, err := o.openOne(ctx, podUID, p)
		if err != nil {
			return 0, fmt.Errorf("open gate of pod %s: %w", podUID, err)
		}
		open = open || was
	}
	if !open {
		return 0, fmt.Errorf("pod %s: %w", podUID, ErrNoGate)
	}
	return time.Since(began), nil
}

// Await opens the gate as soon as there is one. A gate may come late, after its image, or never: when to give up is
// the caller's to know, who ends ctx.
func (o Opener) Await(ctx context.Context, podUID string) (time.Duration, error) {
	began := time.Now()
	for {
		looks := time.Now()
		took, err := o.Open(ctx, podUID)
		if !errors.Is(err, ErrNoGate) {
			return took, err
		}
		again := time.NewTimer(pause(time.Since(looks), time.Since(began)))
		select {
		case <-ctx.Done():
			again.Stop()
			return 0, errors.Join(err, ctx.Err())
		case <-again.C:
		}
	}
}

// pause after a look that took so long, when looks have gone on for so long.
func pause(look, since time.Duration) time.Duration {
	if since >= searchFor {
		return max(searchLate, idle*look)
	}
	return max(search, idle*look)
}

// openOne signals one process until it has ended; false if it is no gate, or has ended before the first signal.
func (o Opener) openOne(ctx context.Context, podUID string, p process.Process) (bool, error) {
	h, err := o.Finder.Hold(podUID, p)
	if err != nil {
		return false, ignoreGone(err)
	}
	defer h.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(o.Patience, DefaultPatience), ErrStuck)
	defer cancel()
	for signalled := false; ; signalled = true {
		// Looked at before each signal: a process may become another program, and keep its number and its pidfd.
		exe, args, err := h.Program()
		if err != nil || !o.isGate(exe, args) {
			return signalled, ignoreGone(err)
		}
		if err := h.Signal(Signal); err != nil {
			return signalled, ignoreGone(err)
		}
		over, err := h.Ended(ctx, interval)
		if ctx.Err() != nil {
			return signalled, fmt.Errorf("process %d: %w", p.PID, context.Cause(ctx))
		}
		if over || err != nil {
			return true, err
		}
	}
}

// isGate recognises the agent's gate. A process's environment and name are its own to choose and are not asked. Its
// arguments are too, but nobody is harmed who passes for a gate: the signal does nothing to a process that does not wait
// for it.
func (o Opener) isGate(executable string, args []string) bool {
	return executable == cmp.Or(o.Executable, gateconfig.Executable) && len(args) > 1 && args[1] == gateconfig.Subcommand
}

func ignoreGone(err error) error {
	if errors.Is(err, process.ErrNoProcess) {
		return nil
	}
	return err
}
