package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/sonde-operator/sonde/agents/gate"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// init names the process: the probe recognises the gate by that. Go runs init on the process's first thread, whose name it is.
func init() {
	if len(os.Args) > 1 && os.Args[1] == gateconfig.Subcommand {
		gate.NameProcess()
	}
}

// runGate delays a Pod's start until its tracer is attached. Its exit codes are in internal/wire/gateconfig.
func runGate(ctx context.Context, args []string, log *slog.Logger) (int, error) {
	flags := flag.NewFlagSet("agent gate", flag.ContinueOnError)
	o := gate.Options{Out: os.Stdout, Log: log}
	o.Timeout, o.OnTimeout = gateconfig.DefaultTimeout, gateconfig.Proceed
	durationVar(flags, &o.Timeout, "timeout", "`time` to wait for the tracer: 30s, 5m")
	flags.Func("on-timeout", "`action` after that time: Proceed lets the Pod start untraced, Fail does not let it start", func(s string) error {
		o.OnTimeout = gateconfig.OnTimeout(s)
		if o.OnTimeout != gateconfig.Proceed && o.OnTimeout != gateconfig.Fail {
			return fmt.Errorf("write %s or %s", gateconfig.Proceed, gateconfig.Fail)
		}
		return nil
	})
	flags.Func("until", "`time` from which on the gate is open (RFC 3339)", func(s string) (err error) {
		o.Until, err = time.Parse(time.RFC3339, s)
		return err
	})
	flags.StringVar(&o.TerminationLog, "termination-log", terminationLog, "`file` for the termination message")
	if err := parse(flags, args); err != nil {
		return exitUsage, err
	}
	return gate.Run(ctx, &o), nil
}
