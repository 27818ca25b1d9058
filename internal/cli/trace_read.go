package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/cli/traceview"
	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Values of --output.
const (
	outputText    = ""
	outputSummary = "summary"
	outputJSON    = "json"
)

type traceRead struct {
	plugin *plugin
	output string
	colour colourFlag
	filter traceview.Filter
}

// groups of events.
var groups = []v1alpha1.TraceGroup{
	v1alpha1.TraceProcess, v1alpha1.TraceFile, v1alpha1.TraceIO, v1alpha1.TraceNetwork, v1alpha1.TraceMemory, v1alpha1.TraceSignal,
}

func newTraceRead(p *plugin) *cobra.Command {
	c := &traceRead{plugin: p}
	cmd := &cobra.Command{
		Use:   "read FILE...",
		Short: "Show saved traces",
		Long: `Shows a line for each event of the traces in FILEs, and a summary of all events: files, slow and failed
calls, processes. Events of several files are shown in the order of time.

Events that the flags exclude are neither shown nor counted; the summary says how many of all events it has. Lost and
missing events are reported for the whole trace.

Exit code 3 says that lines are missing which the tracer wrote, or that a trace ended early; the summary has the reason.
Events that the tracer lost are counted in the summary and do not change the exit code.`,
		Example: `  kubectl sonde trace read web-1.ndjson web-2.ndjson
  kubectl sonde trace read web.ndjson -o summary
  kubectl sonde trace read web.ndjson --container web --events file,network --failed
  kubectl sonde trace read web.ndjson --call read,write --min-latency 10ms
  kubectl sonde trace read web.ndjson -o json | jq 'select(.errno == "ENOENT") | .path'`,
		Args: someArguments("at least one FILE, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.StringVarP(&c.output, "output", "o", outputText, "summary for only the summary, or json for the lines of all files in the order of time")
	f.StringSliceVar(&c.filter.Groups, "events", nil, "Show only these groups of events: process, file, io, network, memory, signal")
	f.StringSliceVar(&c.filter.Calls, "call", nil, "Show only these calls and events, by name, like openat or exec; in addition to the groups of --events")
	f.StringSliceVar(&c.filter.Pods, "pod", nil, "Show only these Pods, by name, or by how the name begins, like 'web-68498899d4-*'")
	f.StringSliceVar(&c.filter.Containers, "container", nil, "Show only these containers, by name")
	f.StringSliceVar(&c.filter.Comms, "comm", nil, "Show only threads with these names, as in the lines")
	f.DurationVar(&c.filter.MinLatency, "min-latency", 0, "Omit shorter calls: a duration like 500us, 10ms, 1s; events without a duration are shown")
	f.BoolVar(&c.filter.Failed, "failed", false, "Show only calls that failed")
	c.colour.add(cmd)
	return cmd
}

func (c *traceRead) run(ctx context.Context, paths []string) error {
	switch c.output {
	case outputText, outputSummary, outputJSON:
	default:
		return fmt.Errorf("--output %s: write summary or json, or omit the flag", c.output)
	}
	if err := rejectUnknownGroup(c.filter.Groups); err != nil {
		return fmt.Errorf("%w; to select single calls, use --call", err)
	}
	sources, closeAll, err := c.open(ctx, paths)
	defer closeAll()
	if err != nil {
		return err
	}
	return c.show(ctx, sources)
}

// rejectUnknownGroup rejects values of --events that are not groups of events: trace read would show nothing for them.
func rejectUnknownGroup(values []string) error {
	for _, value := range values {
		if !slices.Contains(groups, v1alpha1.TraceGroup(value)) {
			return fmt.Errorf("--events %s: write one or more of %q", value, groups)
		}
	}
	return nil
}

func (c *traceRead) open(ctx context.Context, paths []string) (sources []*traceview.Source, closeAll func(), err error) {
	var files []*os.File
	closeAll = func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	standardInput := false
	for _, path := range paths {
		if path == "-" {
			if standardInput {
				return nil, closeAll, errors.New("- is given twice, but standard input can be read only once")
			}
			standardInput = true
			sources = append(sources, traceview.NewSource("standard input", cancellableReader(ctx, c.plugin.streams.In)))
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, closeAll, fmt.Errorf("open the trace: %w", err)
		}
		files = append(files, f)
		if i, err := f.Stat(); err == nil && i.IsDir() {
			return nil, closeAll, fmt.Errorf("%s is a directory: name the .ndjson files in it", path)
		}
		sources = append(sources, traceview.NewSource(path, f))
	}
	return sources, closeAll, nil
}

// cancellableReader reads from in until ctx ends. A read of a pipe without input would otherwise block for ever.
func cancellableReader(ctx context.Context, in io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = w.Close() })
	return r
}

// show prints the events of sources as they come, and a summary at the end or after an interrupt.
func (c *traceRead) show(ctx context.Context, sources []*traceview.Source) error {
	p := c.plugin
	out := bufio.NewWriterSize(p.streams.Out, 64<<10)
	s := &traceSink{out: out, summary: traceview.NewSummary(), filter: &c.filter, json: c.output == outputJSON, terminal: p.width != nil, several: len(sources) > 1}
	if c.output == outputText {
		s.live = traceview.NewLive(out)
		s.live.Colour, s.live.Pods, s.live.Width = c.colour.enabled(p), s.several, p.width
	}
	failed := traceview.Read(ctx, sources, s)
	if failed == nil && !s.json {
		text := s.summary.Text()
		if s.live != nil {
			text = "\n" + text
		}
		_, failed = out.WriteString(text)
	}
	if err := s.Idle(); failed == nil {
		failed = err
	}
	switch problems := s.summary.Problems(); {
	case failed != nil:
		return failed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case len(problems) > 0:
		if s.json { // otherwise they are in the summary
			for _, text := range problems {
				fmt.Fprintln(p.streams.ErrOut, "INCOMPLETE: "+table.Printable(text))
			}
		}
		return exitCode(report.ExitIncomplete)
	}
	return nil
}

// traceSink prints lines and sums them up.
type traceSink struct {
	out     *bufio.Writer
	live    *traceview.Live // nil if events are not shown
	summary *traceview.Summary
	filter  *traceview.Filter
	json    bool
	// terminal: what is not printable in JSON lines is escaped.
	terminal bool
	// several sources: each line must name its Pod.
	several bool
	buf     []byte // reused for each line
}

// Line prints a line and adds it to the summary, unless the filter excludes it.
func (s *traceSink) Line(from *traceview.Source, line *tracefmt.Line) error {
	if line.Record != nil && !s.filter.Keeps(from.Pod(), line.Record) {
		s.summary.Exclude(from, line.Record)
		return nil
	}
	s.summary.Line(from, line)
	if s.live != nil && s.summary.Pods() > 1 { // one file may have several Pods
		s.live.Pods = true
	}
	switch {
	case s.json:
		s.buf = s.appendWithPod(s.buf[:0], from, line)
		if s.terminal {
			s.buf = table.AppendPrintableJSON(nil, s.buf)
		}
		_, err := s.out.Write(s.buf)
		return wrapPrintError(err)
	case s.live != nil && line.Record != nil:
		return s.live.Show(from, line.Record)
	}
	return nil
}

// appendWithPod appends a line. If there are several sources, it adds the name and UID of the Pod, as names may repeat.
func (s *traceSink) appendWithPod(b []byte, from *traceview.Source, line *tracefmt.Line) []byte {
	h := from.Header
	named := line.Record != nil && line.Record.Pod != "" || line.Account != nil && line.Account.Pod != ""
	if !s.several || named || line.Header != nil || h == nil || h.Pod == "" {
		return append(append(b, line.Raw...), '\n')
	}
	return tracefmt.AppendWithPod(b, line.Raw, h.Pod, h.PodUID)
}

// Damaged adds a damaged line to the summary.
func (s *traceSink) Damaged(from *traceview.Source, err error) error {
	s.summary.Damaged(from, err)
	return nil
}

// End adds the end of a source to the summary.
func (s *traceSink) End(from *traceview.Source) { s.summary.End(from) }

// Idle flushes the output before waiting.
func (s *traceSink) Idle() error { return wrapPrintError(s.out.Flush()) }

func wrapPrintError(err error) error {
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
