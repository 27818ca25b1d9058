package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
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

// Opened is a gate that was opened.
type Opened struct {
	// ContainerID of the gate, without a scheme. Only the init container of a Pod is its gate: another container may have a
	// process that looks like one.
	ContainerID string
	// Took is the time from the first signal to the end of the gate's process.
	Took time.Duration
}

// Open opens the gate of a Pod. When it returns the gate's process has ended, and the Pod's next container starts. It signals only processes of the Pod's cgroup that are the gate by executable, and by the process's name or the container's.
// It returns ErrNoGate if there is none.
func (o Opener) Open(ctx context.Context, podUID string) (Opened, error) {
	procs, err := o.Finder.Pod(podUID)
	if err != nil {
		return Opened{}, err
	}
	began, opened := time.Now(), Opened{}
	for _, p := range procs {
		ok, err := o.openOne(ctx, podUID, p)
		if err != nil {
			return Opened{}, fmt.Errorf("open gate of pod %s: %w", podUID, err)
		}
		if ok {
			opened = Opened{p.ContainerID, time.Since(began)}
		}
	}
	if opened == (Opened{}) {
		return opened, fmt.Errorf("pod %s: %w", podUID, ErrNoGate)
	}
	return opened, nil
}

// Await opens the gate when it starts. That may never happen: the caller ends ctx to give up.
func (o Opener) Await(ctx context.Context, podUID string) (Opened, error) {
	began := time.Now()
	for {
		searched := time.Now()
		opened, err := o.Open(ctx, podUID)
		if !errors.Is(err, ErrNoGate) {
			return opened, err
		}
		timer := time.NewTimer(pause(time.Since(searched), time.Since(began)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return Opened{}, errors.Join(err, ctx.Err())
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
	named := sync.OnceValue(func() bool { return o.inGate(p) })
	for signalled := false; ; signalled = true {
		// Checked before each signal: a process may run another program now, with the same number and pidfd.
		exe, name, err := h.Program()
		if err != nil || !o.isGate(exe, name, named) {
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

// isGate recognises the agent's gate. Up to version 0.2.0 a gate did not name its process: then it must be in the container of that
// name. A process can choose its name. But pretending to be a gate does no harm: the signal has no effect on a process that does not
// wait for it, and the manager compares the container.
func (o Opener) isGate(executable, name string, inGate func() bool) bool {
	return executable == cmp.Or(o.Executable, gateconfig.Executable) && (name == gateconfig.ProcessName || inGate())
}

// inGate reports whether the kubelet's name of a process's container is the gate's.
func (o Opener) inGate(p process.Process) bool {
	names, err := o.Finder.ContainerNames()
	return err == nil && names[p.ContainerID] == gateconfig.ContainerName
}

func ignoreGone(err error) error {
	if errors.Is(err, process.ErrNoProcess) {
		return nil
	}
	return err
}
