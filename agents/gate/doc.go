// Package gate has both sides of the gate of a traced Pod: the process that waits in the Pod's first init container, and
// the opener on the node, which ends the wait when the Pod's tracer is attached. They communicate by one signal, without a
// volume, network or API (docs/adr/0009-gate.md).
//
// The signal is SIGWINCH, because its default action is to do nothing. A gate that is process 1 of its namespace ignores
// signals that it does not handle. Another one (shareProcessNamespace, hostPID) would be killed by SIGUSR1 or a real-time
// signal that arrives before the Go runtime has installed its handlers; blocking the signal would come too late, too. With
// SIGWINCH an early signal is lost and harmless, and the opener repeats it until the process has ended. The other signals
// without a default action have other senders: the Go runtime preempts itself by SIGURG, children of a process 1 send
// SIGCHLD, and debuggers SIGCONT. SIGWINCH comes from a terminal, and the container has none.
package gate

import "golang.org/x/sys/unix"

// Signal opens a gate.
const Signal = unix.SIGWINCH
