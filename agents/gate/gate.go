package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// Options of a gate.
type Options struct {
	gateconfig.Config

	// Out gets one line at the start and one at the end.
	Out io.Writer
	// TerminationLog is the file for the termination message. It is not created if it is missing.
	TerminationLog string
	Log            *slog.Logger
}

// Run waits until the gate is opened, its time is over, or ctx ends because the Pod does. It returns the exit code. It
// needs no particular user, no capability and no writable file.
func Run(ctx context.Context, o *Options) int {
	opened := make(chan os.Signal, 1)
	signal.Notify(opened, Signal)
	defer signal.Stop(opened)

	began := time.Now()
	outcome := await(ctx, o, opened)
	message := gateconfig.Message(outcome, time.Since(began))
	fmt.Fprintln(o.Out, message)
	if err := writeTermination(o.TerminationLog, message); err != nil {
		o.Log.Warn("Writing the termination message failed", "error", err)
	}
	return outcome.ExitCode()
}

// NameProcess gives the calling thread the name by which an Opener recognises a gate. It must be the process's first one.
func NameProcess() {
	name := append([]byte(gateconfig.ProcessName), 0)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0) // it fails only for an invalid address
}

func await(ctx context.Context, o *Options, opened <-chan os.Signal) gateconfig.Outcome {
	timeout, late := o.Timeout, lateOutcome(o.OnTimeout)
	if !o.Until.IsZero() {
		// By the wall clock: Until comes from the API server.
		if left := time.Until(o.Until); left < timeout {
			timeout, late = left, gateconfig.Over
		}
	}
	if timeout <= 0 {
		return late
	}
	fmt.Fprintf(o.Out, "Waiting at most %v for the tracer, then: %s\n", timeout.Round(time.Second), late)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-opened:
		return gateconfig.Opened
	case <-timer.C:
		return late
	case <-ctx.Done():
		return gateconfig.Ended
	}
}

// lateOutcome is the outcome of a gate that was not opened in time.
func lateOutcome(o gateconfig.OnTimeout) gateconfig.Outcome {
	if o == gateconfig.Fail {
		return gateconfig.Refused
	}
	return gateconfig.Untraced
}

// writeTermination writes to the file that the kubelet has mounted. It is writable for every user, also with a read-only root.
func writeTermination(path, message string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(message)
	return errors.Join(err, f.Close())
}
