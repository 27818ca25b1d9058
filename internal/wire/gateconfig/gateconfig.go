// Package gateconfig is what manager and agent agree on about the gate: how it is called, how long it waits, and what
// its exit code and last words mean. It links nothing, because the agent does.
package gateconfig

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// How the gate is recognised: by the manager in a Pod, by the probe on the node.
const (
	// ContainerName of the init container.
	ContainerName = "sonde-gate"
	// Executable is the path of the agent in its image.
	Executable = "/agent"
	// Subcommand of the agent, its first argument.
	Subcommand = "gate"
)

// Exit codes. With 0 the Pod goes on.
const (
	// ExitRefused says that no tracer came, and that the Pod must not start without (EX_TEMPFAIL of sysexits.h).
	ExitRefused = 75
	// ExitEnded says that the Pod was told to end while the gate was closed: 128 + SIGTERM, as a shell has it.
	ExitEnded = 143
)

// Bounds of the time that a gate waits.
const (
	DefaultTimeout = 30 * time.Second
	MaxTimeout     = 10 * time.Minute
)

// OnTimeout is what becomes of a Pod whose tracer does not come.
type OnTimeout string

// The two ways out.
const (
	// Proceed lets the Pod start untraced.
	Proceed OnTimeout = "Proceed"
	// Fail does not let it start: the kubelet starts the gate again, or calls the Pod failed, as its restartPolicy says.
	Fail OnTimeout = "Fail"
)

// Config is what a gate is told.
type Config struct {
	Timeout   time.Duration
	OnTimeout OnTimeout
	// Until is when the trace is over at the latest: from then on the gate is open, for a Pod whose sandbox is started
	// again long after, with nobody there to open it. Fail needs one, so that no Pod outlives its operator unable to start.
	Until time.Time
}

// Validate reports what a gate could not work with.
func (c Config) Validate() error {
	switch {
	case c.Timeout < time.Second || c.Timeout > MaxTimeout:
		return fmt.Errorf("timeout %v: write between 1s and %v", c.Timeout, MaxTimeout)
	case c.OnTimeout != Proceed && c.OnTimeout != Fail:
		return fmt.Errorf("on-timeout %q: write %s or %s", c.OnTimeout, Proceed, Fail)
	case c.OnTimeout == Fail && c.Until.IsZero():
		return errors.New("on-timeout Fail needs until, the time at which the trace is over: without it the Pod might never start again")
	}
	return nil
}

// Args returns the arguments of the agent's binary. They depend on nothing but c: the same gate is always written alike.
func (c Config) Args() []string {
	seconds := (c.Timeout + time.Second - 1) / time.Second
	args := []string{Subcommand, "--timeout", strconv.FormatInt(int64(seconds), 10) + "s", "--on-timeout", string(c.OnTimeout)}
	if !c.Until.IsZero() {
		args = append(args, "--until", c.Until.UTC().Format(time.RFC3339))
	}
	return args
}
