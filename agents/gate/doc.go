// Package gate has both sides of a traced Pod's gate: the process that waits in the Pod's first init container, and the
// opener. The opener runs on the node, and ends the wait when the Pod's tracer is attached. They communicate by one
// signal, without a volume, network or API (docs/adr/0009-gate.md).
//
// The signal is SIGWINCH, because its default action is to do nothing. A gate that is process 1 of its namespace
// ignores signals that it does not handle. With shareProcessNamespace or hostPID it is not process 1: SIGUSR1 or a
// real-time signal would kill it before the Go runtime has installed its handlers. Blocking the signal would come too
// late, too. With SIGWINCH an early signal is lost and harmless, and the opener repeats it until the process has ended.
// The other signals without a default action have other senders: the Go runtime preempts itself by SIGURG, children of
// a process 1 send SIGCHLD, and debuggers SIGCONT. SIGWINCH comes from a terminal, and the container has none.
package gate

import "golang.org/x/sys/unix"

// Signal opens a gate.
const Signal = unix.SIGWINCH
