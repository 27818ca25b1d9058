// Package gateconfig is the contract between manager and agent about the gate: its name and arguments, how long it waits,
// and the meaning of its exit code and termination message. It imports only the standard library, to keep the agent small.
package gateconfig

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The manager recognises the gate by these in a Pod, the probe on the node.
const (
	// ContainerName of the init container.
	ContainerName = "sonde-gate"
	// Executable is the path of the agent in its image.
	Executable = "/agent"
	// Subcommand of the agent, its first argument.
	Subcommand = "gate"
	// ProcessName is what the gate names its process, at most 15 bytes (PR_SET_NAME in prctl(2)).
	ProcessName = "sonde-gate"
)

// Exit codes. After 0 the Pod continues.
const (
	// ExitRefused says that no tracer came, and that the Pod must not start without one (EX_TEMPFAIL of sysexits.h).
	ExitRefused = 75
	// ExitEnded says that the Pod was terminated while the gate was closed: 128 + SIGTERM, as in a shell.
	ExitEnded = 143
)

// Bounds of the time that a gate waits.
const (
	DefaultTimeout = 30 * time.Second
	MaxTimeout     = 10 * time.Minute
)

// OnTimeout says what happens to a Pod whose tracer does not come.
type OnTimeout string

// Values of OnTimeout.
const (
	// Proceed lets the Pod start untraced.
	Proceed OnTimeout = "Proceed"
	// Fail does not let it start: the kubelet restarts the gate, or fails the Pod, by its restartPolicy.
	Fail OnTimeout = "Fail"
)

// Config of a gate.
type Config struct {
	Timeout   time.Duration
	OnTimeout OnTimeout
	// Until is when the trace ends at the latest. From then on the gate is open: a Pod's sandbox may be restarted long after
	// the trace. Fail needs it, so that the Pod can start if the operator never returns.
	Until time.Time
}

// Validate reports values that a gate does not accept.
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

// Args returns the arguments of the agent's binary. They depend only on c, so that the same gate always has the same arguments.
func (c Config) Args() []string {
	seconds := (c.Timeout + time.Second - 1) / time.Second
	args := []string{Subcommand, "--timeout", strconv.FormatInt(int64(seconds), 10) + "s", "--on-timeout", string(c.OnTimeout)}
	if !c.Until.IsZero() {
		args = append(args, "--until", c.Until.UTC().Format(time.RFC3339))
	}
	return args
}
