package cli

import (
	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
)

const traceExamples = `  # What the processes of a Deployment's Pods start, open and remove, until you interrupt
  kubectl sonde trace deploy/web -n shop

  # Which reads and writes take long
  kubectl sonde trace sts/db -n shop --for 30s --events io --min-latency 10ms -o db.ndjson

  # What was traced before
  kubectl sonde trace read db.ndjson`

func newTrace(p *plugin) *cobra.Command {
	c := &takeCommand{plugin: p, build: func(r capture.Request) (v1alpha1.Capture, error) { return r.BuildTrace() }}
	cmd := &cobra.Command{
		Use:   "trace TARGET",
		Short: "Trace the system calls of every Pod of a workload, and save them",
		Long: `Traces what the processes of every Pod of TARGET do, saves the events as one file of JSON lines, and shows a summary:
files, slow and failed calls, processes. The lines themselves are shown by the command read.

TARGET is deploy/NAME, sts/NAME, ds/NAME, pod/NAME, or the NAME of a Deployment. Interrupting (Ctrl-C)
stops the trace and saves what there is; interrupting once more leaves at once.

Exit code: 0 all is saved; 3 a file is saved, and events are missing from it or may be; 1 error;
130 left by interrupting. Events that the tracer could not keep are counted in the summary.`,
		Example: traceExamples,
		Args:    oneArgument("TARGET, like deploy/web, or the command read"),
		PreRunE: func(cmd *cobra.Command, _ []string) error { return refuseZero(cmd, "max-events") },
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	f, r := cmd.Flags(), &c.request
	f.StringVar(&r.Duration, "for", "", "How long to trace: seconds, or like 90s, 5m, 1h30m (default until interrupted, at most for as long as the cluster allows)")
	f.StringSliceVar(&r.Events, "events", nil, "Groups of events: process, file, io, memory, signal (default process,file)")
	f.StringVar(&r.MinLatency, "min-latency", "", "Leave out calls that took less, like 500us, 10ms, 1s")
	f.Int64Var(&r.MaxEvents, "max-events", 0, "End a Pod's trace after so many events (default no limit)")
	f.StringVar(&r.MaxBytes, "max-bytes", "", "Largest size of one Pod's files, like 100Mi (default 1Gi)")
	f.StringVar(&r.Format, "format", "", "ndjson, or flap: the lines of FLAP, in a directory of files (default ndjson)")
	c.addFlags(cmd, "Trace", "TARGET-TIME.ndjson")
	cmd.AddCommand(newTraceRead(p))
	return cmd
}
