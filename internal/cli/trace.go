package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
)

const traceExamples = `  # What the processes of a Deployment start, open and connect to, until you interrupt
  kubectl sonde trace deploy/web -n shop

  # From the first system call of each new Pod
  kubectl sonde trace deploy/web -n shop --gate

  # One program in one container, and the processes it starts
  kubectl sonde trace deploy/web -n shop --container web --command nginx --children

  # Which reads and writes are slow, and only the summary
  kubectl sonde trace sts/db -n shop --for 30s --events io --min-latency 10ms -o db.ndjson --quiet

  # Into another program, while the trace runs
  kubectl sonde trace deploy/web -n shop --for 30s -o json | jq -r 'select(.errno == "ENOENT") | .path'

  # Show a saved trace
  kubectl sonde trace read db.ndjson`

func newTrace(p *plugin) *cobra.Command {
	lines := &lineFlags{}
	c := &startCommand{plugin: p, lines: lines, build: func(r capture.Request) (v1alpha1.Capture, error) { return r.BuildTrace() }}
	cmd := &cobra.Command{
		Use:   "trace TARGET",
		Short: "Trace the system calls of every Pod of a workload and save them",
		Long: `Traces the processes of every Pod of TARGET, shows the events while they happen, saves them as one file of JSON lines, and
prints a summary: files, connections, slow and failed calls, processes.

TARGET is deploy/NAME, sts/NAME, ds/NAME, pod/NAME, or the NAME of a Deployment. Interrupting (Ctrl-C)
stops the trace and saves the events so far. Interrupting again exits at once.

Events that come too fast to be shown are counted. They are in the file.

Exit code: 0 everything is saved; 3 a file is saved, but events are or may be missing from it; 1 error;
130 interrupted. Events that the tracer lost are counted in the summary and do not change the exit code.`,
		Example: traceExamples,
		Args:    oneArgument("TARGET, like deploy/web, or the command read"),

		ValidArgsFunction: p.completeTarget,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(rejectZero(cmd, "max-events"),
				rejectEmpty(cmd, "for", "events", "container", "command", "min-latency", "max-bytes", "format", "gate-timeout", "gate-on-timeout"),
				rejectUnknownGroup(c.request.Events))
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	f, r := cmd.Flags(), &c.request
	f.StringVar(&r.Duration, "for", "", "How long to trace: seconds, or a duration like 90s, 5m, 1h30m (default until interrupted, or the limit of the cluster)")
	f.StringSliceVar(&r.Events, "events", nil, "Groups of events: process, file, io, network, memory, signal (default process,file,network)")
	f.StringSliceVar(&r.Containers, "container", nil, "Containers to trace, by name; may be repeated (default all)")
	f.StringVar(&r.Command, "command", "", "Trace only processes with this name, like nginx, or this executable, like /usr/sbin/nginx (default all)")
	f.BoolVar(&r.Children, "children", false, "With --command: also trace the processes that it starts")
	f.StringVar(&r.MinLatency, "min-latency", "", "Omit shorter calls: a duration like 500us, 10ms, 1s")
	f.Int64Var(&r.MaxEvents, "max-events", 0, "End the trace of a Pod after this many events (default no limit)")
	f.StringVar(&r.MaxBytes, "max-bytes", "", "Largest size of one Pod's files, like 100Mi (default 1Gi)")
	f.StringVar(&r.Format, "format", "", "ndjson, or flap for the lines of FLAP in a directory of files (default ndjson)")
	f.BoolVar(&r.Gate, "gate", false, "Make new Pods of TARGET wait until they are traced, so that their first system calls are in the trace")
	f.StringVar(&r.GateTimeout, "gate-timeout", "", "How long a Pod waits, like 30s, 5m (default 30s)")
	f.StringVar(&r.GateOnTimeout, "gate-on-timeout", "", "What happens then: Proceed starts the Pod untraced, Fail does not start it while the trace runs (default Proceed)")
	f.BoolVarP(&lines.quiet, "quiet", "q", false, "Show only the summary, not the events")
	f.BoolVar(&lines.top, "top", false, topUsage("calls"))
	lines.colour.add(cmd)
	c.addFlags(cmd, "Trace", "TARGET-TIME.ndjson")
	f.Lookup("output").Usage = "File to save to, or - for standard output, or json to print the events as they come (default TARGET-TIME.ndjson)"
	cmd.AddCommand(newTraceRead(p))
	return cmd
}
