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

	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// Options of a gate.
type Options struct {
	gateconfig.Config

	// Out gets one line at the beginning and one at the end.
	Out io.Writer
	// TerminationLog is the file for the last words. It is never made: a container that has none has its log.
	TerminationLog string
	Log            *slog.Logger
}

// Run waits until the gate is opened, the time is over, or ctx ends because the Pod does. It needs no right at all: no
// user of its own, no capability, nothing to write to. It returns the exit code.
func Run(ctx context.Context, o *Options) int {
	opened := make(chan os.Signal, 1)
	signal.Notify(opened, Signal)
	defer signal.Stop(opened)

	began := time.Now()
	outcome := await(ctx, o, opened)
	words := gateconfig.Words(outcome, time.Since(began))
	fmt.Fprintln(o.Out, words)
	if err := leave(o.TerminationLog, words); err != nil {
		o.Log.Warn("Failing to write the last words", "error", err)
	}
	return outcome.ExitCode()
}

func await(ctx context.Context, o *Options, opened <-chan os.Signal) gateconfig.Outcome {
	bound, late := o.Timeout, untraced(o.OnTimeout)
	if !o.Until.IsZero() {
		// The wall clock, as the other side of Until is a time of the API server's.
		if left := time.Until(o.Until); left < bound {
			bound, late = left, gateconfig.Over
		}
	}
	if bound <= 0 {
		return late
	}
	fmt.Fprintf(o.Out, "Waiting at most %v for the tracer, then: %s\n", bound.Round(time.Second), late)
	over := time.NewTimer(bound)
	defer over.Stop()
	select {
	case <-opened:
		return gateconfig.Opened
	case <-over.C:
		return late
	case <-ctx.Done():
		return gateconfig.Ended
	}
}

func untraced(o gateconfig.OnTimeout) gateconfig.Outcome {
	if o == gateconfig.Fail {
		return gateconfig.Refused
	}
	return gateconfig.Untraced
}

// leave writes into the file that the kubelet has mounted; anybody may write to it, whatever the root file system is.
func leave(path, words string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(words)
	return errors.Join(err, f.Close())
}
