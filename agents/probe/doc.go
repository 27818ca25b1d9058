// Package probe is the privileged container of an agent's Pod. It finds the target Pod's processes on its node,
// attaches a capture engine or a tracer to them, and reports its account until the capture ends. The account is in a
// progress file, which the keeper streams. It is also in the container's termination message, which the manager can
// read when the Pod is gone.
//
// The probe has no port, token or credentials. It reads its configuration once (internal/wire/captureconfig), and stops on a
// file in the control volume or on SIGTERM.
package probe
