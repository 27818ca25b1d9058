package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/sonde-operator/sonde/internal/cli/report"
)

// leaveWithin is how long a command may go on after it was told to leave.
const leaveWithin = 3 * time.Second

// Options are what the process gives the plugin.
type Options struct {
	Streams genericiooptions.IOStreams
	// Terminal is where live output is redrawn; nil where there is none, and plain lines are written to Streams.ErrOut.
	Terminal *os.File
	// Colour what is written to Streams.Out: it is a terminal, and nobody objects.
	Colour bool
	// Width returns how many characters a line of Streams.Out may have; nil where it is no terminal.
	Width func() int
	// Signals ask to end: the first ends the capture, or what else is at work; the next leaves at once.
	Signals <-chan os.Signal
}

// Main runs one command and returns the exit code: 0; 1 for an error; 3 for a capture that is saved
// but incomplete; 130 when it was interrupted. Errors are printed.
func Main(ctx context.Context, args []string, o Options) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := newPlugin(o, &interrupts{cancel: cancel})
	go p.interrupts.listen(ctx, o.Signals)

	command := p.command()
	command.SetArgs(args)
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	select {
	case err := <-ended:
		return p.exit(ctx, err)
	case <-ctx.Done():
	}
	select { // it may be about to say how to go on; but a read from the terminal does not end by itself
	case err := <-ended:
		return p.exit(ctx, err)
	case <-time.After(leaveWithin):
		return p.exit(ctx, errInterrupted)
	}
}

// exitCode ends the plugin without a further message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func (p *plugin) exit(ctx context.Context, err error) int {
	var code exitCode
	switch {
	case err == nil:
		return report.ExitOK
	case errors.As(err, &code):
		return int(code)
	case errors.Is(context.Cause(ctx), errInterrupted): // whatever it was that this broke
		return report.ExitInterrupted
	}
	fmt.Fprintln(p.streams.ErrOut, describe(err))
	return report.ExitError
}
