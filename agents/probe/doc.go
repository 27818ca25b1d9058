// Package probe is the privileged container of an agent's Pod. It finds the target Pod's processes on its node, attaches
// a capture engine to their network namespace, and accounts for what it does until the capture ends: in a progress
// file, which the keeper streams, and in the container's termination message, which the manager reads even when nothing
// else of the Pod is left.
//
// The probe has no port, no token and no credentials. It is told what to do by a file that it reads once
// (internal/wire/captureconfig), and to stop by a file in the control volume or by SIGTERM.
package probe
