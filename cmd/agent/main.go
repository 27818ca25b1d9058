// Command agent has the programs of an agent's Pod: the privileged probe, its readiness check, and the keeper. It also
// has the gate of a traced Pod, the doctor, which checks what a node allows, sweep, which removes the remains of a killed
// probe, opener and carrier of an intercept, and Stowaway, the cluster's end of the tunnel to developers' machines. It is one
// small static binary that links no Kubernetes client.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sonde-operator/sonde/internal/version"
	"github.com/sonde-operator/sonde/internal/wire/duration"
)

// exitUsage is the exit code for invalid arguments (EX_USAGE of sysexits.h).
const exitUsage = 64

// errUsage is returned when the error has been printed.
var errUsage = errors.New("bad arguments")

// command is one subcommand. It returns the exit code.
type command func(ctx context.Context, args []string, log *slog.Logger) (int, error)

var commands = map[string]command{
	"probe":    runProbe,
	"keeper":   runKeeper,
	"ready":    runReady,
	"gate":     runGate,
	"doctor":   runDoctor,
	"sweep":    runSweep,
	"opener":   runOpener,
	"carrier":  runCarrier,
	"stowaway": runStowaway,
	"version":  runVersion,
}

func main() {
	// SIGTERM ends a Pod: commands finish their work.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one subcommand and returns the exit code.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprintln(stderr, "usage: agent probe|keeper|ready|gate|doctor|sweep|opener|carrier|stowaway|version [flags]")
		return exitUsage
	}
	log := slog.New(slog.NewJSONHandler(stderr, nil)).With("part", args[0])
	code, err := commands[args[0]](ctx, args[1:], log)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return exitUsage
	case err != nil:
		fmt.Fprintf(stderr, "agent %s: %v\n", args[0], err)
		return max(code, 1)
	}
	return code
}

func runVersion(context.Context, []string, *slog.Logger) (int, error) {
	_, err := fmt.Println(version.Version)
	return 0, err
}

// parse parses args. It refuses arguments that are not flags, and missing required flags.
func parse(flags *flag.FlagSet, args []string, required ...string) error {
	if err := flags.Parse(args); err != nil {
		return errors.Join(errUsage, err) // keeps ErrHelp; the flag package has printed others
	}
	if flags.NArg() > 0 {
		return usageError(flags, fmt.Sprintf("%q is not a flag", flags.Arg(0)))
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, name := range required {
		if !given[name] {
			return usageError(flags, "--"+name+" is missing")
		}
	}
	return nil
}

// usageError prints a message and all flags.
func usageError(flags *flag.FlagSet, message string) error {
	fmt.Fprintln(flags.Output(), message)
	flags.Usage()
	return errUsage
}

// durationVar defines a flag in the forms of the API ("30", "90s", "5m").
func durationVar(flags *flag.FlagSet, to *time.Duration, name, usage string) {
	flags.Func(name, usage, func(s string) error {
		d, err := duration.Parse(s)
		if err == nil && d <= 0 {
			err = errors.New("must be positive")
		}
		*to = d
		return err
	})
}
