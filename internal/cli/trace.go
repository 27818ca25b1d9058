package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
)

const traceExamples = `  # What the processes of a Deployment's Pods start and open, and whom they talk to, until you interrupt
  kubectl sonde trace deploy/web -n shop

  # From the first system call of each new Pod on
  kubectl sonde trace deploy/web -n shop --gate

  # One program in one container, and what it starts
  kubectl sonde trace deploy/web -n shop --container web --command nginx --children

  # Which reads and writes take long, and nothing but the summary
  kubectl sonde trace sts/db -n shop --for 30s --events io --min-latency 10ms -o db.ndjson --quiet

  # Into another program, while it happens
  kubectl sonde trace deploy/web -n shop --for 30s -o json | jq -r 'select(.errno == "ENOENT") | .path'

  # What was traced before
  kubectl sonde trace read db.ndjson`

func newTrace(p *plugin) *cobra.Command {
	lines := &lineFlags{}
	c := &startCommand{plugin: p, lines: lines, build: func(r capture.Request) (v1alpha1.Capture, error) { return r.BuildTrace() }}
	cmd := &cobra.Command{
		Use:   "trace TARGET",
		Short: "Trace the system calls of every Pod of a workload, and save them",
		Long: `Traces what the processes of every Pod of TARGET do, shows the events while they happen, saves them as one file of JSON
lines, and sums up: files, connections, slow and failed calls, processes.

TARGET is deploy/NAME, sts/NAME, ds/NAME, pod/NAME, or the NAME of a Deployment. Interrupting (Ctrl-C)
stops the trace and saves what there is; interrupting once more leaves at once.

Events that come faster than they can be shown are left out there, and counted: they are in the file.

Exit code: 0 all is saved; 3 a file is saved, and events are missing from it or may be; 1 error;
130 left by interrupting. Events that the tracer could not keep are counted in the summary.`,
		Example: traceExamples,
		Args:    oneArgument("TARGET, like deploy/web, or the command read"),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(refuseZero(cmd, "max-events"),
				refuseEmpty(cmd, "for", "events", "container", "command", "min-latency", "max-bytes", "format", "gate-timeout", "gate-on-timeout"))
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	f, r := cmd.Flags(), &c.request
	f.StringVar(&r.Duration, "for", "", "How long to trace: seconds, or like 90s, 5m, 1h30m (default until interrupted, at most for as long as the cluster allows)")
	f.StringSliceVar(&r.Events, "events", nil, "Groups of events: process, file, io, network, memory, signal (default process,file,network)")
	f.StringSliceVar(&r.Containers, "container", nil, "Containers to trace, by name; may be repeated (default all)")
	f.StringVar(&r.Command, "command", "", "Trace only processes of this name, like nginx, or this executable, like /usr/sbin/nginx (default all)")
	f.BoolVar(&r.Children, "children", false, "With --command: trace also what its processes start")
	f.StringVar(&r.MinLatency, "min-latency", "", "Leave out calls that took less, like 500us, 10ms, 1s")
	f.Int64Var(&r.MaxEvents, "max-events", 0, "End a Pod's trace after so many events (default no limit)")
	f.StringVar(&r.MaxBytes, "max-bytes", "", "Largest size of one Pod's files, like 100Mi (default 1Gi)")
	f.StringVar(&r.Format, "format", "", "ndjson, or flap: the lines of FLAP, in a directory of files (default ndjson)")
	f.BoolVar(&r.Gate, "gate", false, "New Pods of TARGET wait until they are traced, so that their first system call is there")
	f.StringVar(&r.GateTimeout, "gate-timeout", "", "How long a Pod waits, like 30s, 5m (default 30s)")
	f.StringVar(&r.GateOnTimeout, "gate-on-timeout", "", "What then: Proceed lets it start untraced, Fail does not let it start while the trace may last (default Proceed)")
	f.BoolVarP(&lines.quiet, "quiet", "q", false, "Do not show the events, only the summary")
	lines.colour.add(cmd)
	c.addFlags(cmd, "Trace", "TARGET-TIME.ndjson")
	f.Lookup("output").Usage = "File to save to, or - for the standard output, or json: print the events as they come (default TARGET-TIME.ndjson)"
	cmd.AddCommand(newTraceRead(p))
	return cmd
}
