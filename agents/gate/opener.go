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

// ErrNoGate is returned if no gate of the Pod waits on this node: not yet, or not any more.
var ErrNoGate = errors.New("no gate of the pod waits on this node")

// ErrStuck is returned if a gate does not end, for example because it is stopped or its cgroup is frozen.
var ErrStuck = errors.New("the gate does not end")

const (
	// interval between two signals. A lost signal delays the Pod's start by this.
	interval = 2 * time.Millisecond
	// A search for a gate reads the cgroup of every process of the node. Between two searches is a pause of minPause at
	// least, and pauseFactor times the duration of a search; after lateAfter it is latePause at least. A gate starts
	// with its Pod, or much later if its image must be pulled.
	minPause    = 10 * time.Millisecond
	pauseFactor = 4
	lateAfter   = time.Minute
	latePause   = time.Second
	// DefaultTimeout is how long a gate is signalled.
	DefaultTimeout = 10 * time.Second
)

// Opener opens gates from the node's process namespace. It needs the capabilities KILL and SYS_PTRACE.
type Opener struct {
	Finder process.Finder
	// Executable of the gate, as its container sees it; gateconfig.Executable if empty.
	Executable string
	// Timeout of signalling one gate; DefaultTimeout if zero.
	Timeout time.Duration
}

// Open opens the gate of a Pod and returns the time from the first signal to the end of its process. Then the Pod's
// next container starts. It signals only processes of the Pod's cgroup that are the gate by executable and arguments.
// It returns ErrNoGate if there is none.
func (o Opener) Open(ctx context.Context, podUID string) (time.Duration, error) {
	procs, err := o.Finder.Pod(podUID)
	if err != nil {
		return 0, err
	}
	began, opened := time.Now(), false
	for _, p := range procs {
		ok, err := o.openOne(ctx, podUID, p)
		if err != nil {
			return 0, fmt.Errorf("open gate of pod %s: %w", podUID, err)
		}
		opened = opened || ok
	}
	if !opened {
		return 0, fmt.Errorf("pod %s: %w", podUID, ErrNoGate)
	}
	return time.Since(began), nil
}

// Await opens the gate when it starts. That may never happen: the caller ends ctx to give up.
func (o Opener) Await(ctx context.Context, podUID string) (time.Duration, error) {
	began := time.Now()
	for {
		searched := time.Now()
		took, err := o.Open(ctx, podUID)
		if !errors.Is(err, ErrNoGate) {
			return took, err
		}
		timer := time.NewTimer(pause(time.Since(searched), time.Since(began)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return 0, errors.Join(err, ctx.Err())
		case <-timer.C:
		}
	}
}

// pause returns how long to wait after a search of that duration. since is the time since the first search.
func pause(search, since time.Duration) time.Duration {
	if since >= lateAfter {
		return max(latePause, pauseFactor*search)
	}
	return max(minPause, pauseFactor*search)
}

// openOne signals one process until it has ended. It returns false if it is not a gate, or has ended before the first
// signal.
func (o Opener) openOne(ctx context.Context, podUID string, p process.Process) (bool, error) {
	h, err := o.Finder.Hold(podUID, p)
	if err != nil {
		return false, ignoreGone(err)
	}
	defer h.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(o.Timeout, DefaultTimeout), ErrStuck)
	defer cancel()
	for signalled := false; ; signalled = true {
		// Checked before each signal: a process may run another program now, with the same number and pidfd.
		exe, args, err := h.Program()
		if err != nil || !o.isGate(exe, args) {
			return signalled, ignoreGone(err)
		}
		if err := h.Signal(Signal); err != nil {
			return signalled, ignoreGone(err)
		}
		ended, err := h.Ended(ctx, interval)
		if ctx.Err() != nil {
			return signalled, fmt.Errorf("process %d: %w", p.PID, context.Cause(ctx))
		}
		if ended || err != nil {
			return true, err
		}
	}
}

// isGate recognises the agent's gate. A process can choose its environment and name, which are not checked. It can choose its
// arguments, too, but pretending to be a gate does no harm: the signal has no effect on a process that does not wait for it.
func (o Opener) isGate(executable string, args []string) bool {
	return executable == cmp.Or(o.Executable, gateconfig.Executable) && len(args) > 1 && args[1] == gateconfig.Subcommand
}

func ignoreGone(err error) error {
	if errors.Is(err, process.ErrNoProcess) {
		return nil
	}
	return err
}
