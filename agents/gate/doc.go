// Package gate is both sides of the gate of a traced Pod: the process that waits in the Pod's first init container, and
// what opens it from the node once the Pod's tracer is attached. Between them is one signal: no volume, no network, no
// API (docs/adr/0009-gate.md).
//
// The signal is SIGWINCH, because its default action is to do nothing. A gate that is its namespace's process 1 is safe
// from any signal that it does not handle; one that is not (shareProcessNamespace, hostPID) would be killed by SIGUSR1
// or a real-time signal that comes before the Go runtime has its handlers, and blocking it first would come too late for
// the same reason. So a signal that comes too early is lost and harmless, and the opener repeats it until the process is
// gone. Of the signals that do nothing, SIGURG is what the Go runtime preempts itself with, SIGCHLD comes from children
// that a process 1 inherits, and SIGCONT from whoever stops and continues a process; SIGWINCH comes from a terminal,
// which the container has none of.
package gate

import "golang.org/x/sys/unix"

// Signal opens a gate.
const Signal = unix.SIGWINCH
