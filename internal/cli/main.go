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

// exitTimeout is how long a command may run after it was interrupted.
const exitTimeout = 3 * time.Second

// Options are the process environment of the plugin.
type Options struct {
	Streams genericiooptions.IOStreams
	// Terminal is where live output is redrawn. If it is nil, plain lines are written to Streams.ErrOut.
	Terminal *os.File
	// Keyboard is where single key presses are read, for the tables of --top. It is nil if standard input is no terminal.
	Keyboard *os.File
	// Colour says that Streams.Out is a terminal that shows colours.
	Colour bool
	// Width returns the width of Streams.Out in characters. It is nil if that is not a terminal.
	Width func() int
	// Signals interrupt the plugin. The first one stops the capture, if there is one; the next one exits at once.
	Signals <-chan os.Signal
}

// Main runs one command, prints its error and returns the exit code: 0; 1 for an error; 3 for a capture that was saved
// but is incomplete; 130 if interrupted.
func Main(ctx context.Context, args []string, o Options) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := newPlugin(o, &interrupts{cancel: cancel})
	go p.interrupts.listen(ctx, o.Signals)

	command := p.command()
	command.SetArgs(args)
	ended := make(chan error, 1)
	defer p.mode.reset()
	go func() {
		defer p.mode.reset() // a panic ends the process without Main
		ended <- command.ExecuteContext(ctx)
	}()
	select {
	case err := <-ended:
		return p.exit(ctx, err)
	case <-ctx.Done():
	}
	select { // the command may still print what to do next, but a read from the terminal would never end
	case err := <-ended:
		return p.exit(ctx, err)
	case <-time.After(exitTimeout):
		return p.exit(ctx, errInterrupted)
	}
}

// exitCode ends the plugin without printing an error.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func (p *plugin) exit(ctx context.Context, err error) int {
	var code exitCode
	switch {
	case err == nil:
		return report.ExitOK
	case errors.As(err, &code):
		return int(code)
	case errors.Is(context.Cause(ctx), errInterrupted): // the interrupt caused the error
		return report.ExitInterrupted
	}
	fmt.Fprintln(p.streams.ErrOut, describe(err))
	return report.ExitError
}
