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

// What trace read can print.
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

// groups that there are; a name that is none would show nothing, and not say why.
var groups = []v1alpha1.TraceGroup{
	v1alpha1.TraceProcess, v1alpha1.TraceFile, v1alpha1.TraceIO, v1alpha1.TraceNetwork, v1alpha1.TraceMemory, v1alpha1.TraceSignal,
}

func newTraceRead(p *plugin) *cobra.Command {
	c := &traceRead{plugin: p}
	cmd := &cobra.Command{
		Use:   "read FILE...",
		Short: "Show traces that are in files",
		Long: `Shows a line for each event of the traces in FILEs, and a summary of all of them: files, slow and failed
calls, processes. Files of several Pods are shown in the order of time.

Of events that flags leave out there are neither lines nor counts; the summary says how many of all are shown. What was
lost, and what is missing, is told of all.

Exit code 3 says that lines are missing that the tracer wrote, or that it did not end as told; the summary says what.
Events that the tracer could not keep are counted in the summary.`,
		Example: `  kubectl sonde trace read web-1.ndjson web-2.ndjson
  kubectl sonde trace read web.ndjson -o summary
  kubectl sonde trace read web.ndjson --container web --events file,network --failed
  kubectl sonde trace read web.ndjson --call read,write --min-latency 10ms
  kubectl sonde trace read web.ndjson -o json | jq 'select(.errno == "ENOENT") | .path'`,
		Args: someArguments("at least one FILE, or - for the standard input"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.StringVarP(&c.output, "output", "o", outputText, "summary alone, or json: the lines of all files in the order of time")
	f.StringSliceVar(&c.filter.Groups, "events", nil, "Show only these groups of events: process, file, io, network, memory, signal")
	f.StringSliceVar(&c.filter.Calls, "call", nil, "Show only these calls and events, by name, like openat or exec; with --events these too")
	f.StringSliceVar(&c.filter.Containers, "container", nil, "Show only these containers, by name")
	f.StringSliceVar(&c.filter.Comms, "comm", nil, "Show only threads of these names, as the lines have them")
	f.DurationVar(&c.filter.MinLatency, "min-latency", 0, "Leave out what took less, like 500us, 10ms, 1s; what has no duration stays")
	f.BoolVar(&c.filter.Failed, "failed", false, "Show only what failed")
	c.colour.add(cmd)
	return cmd
}

func (c *traceRead) run(ctx context.Context, paths []string) error {
	switch c.output {
	case outputText, outputSummary, outputJSON:
	default:
		return fmt.Errorf("--output %s: write summary or json, or leave it out", c.output)
	}
	for _, group := range c.filter.Groups {
		if !slices.Contains(groups, v1alpha1.TraceGroup(group)) {
			return fmt.Errorf("--events %s: write some of %q; single calls are named by --call", group, groups)
		}
	}
	sources, closeAll, err := c.open(ctx, paths)
	defer closeAll()
	if err != nil {
		return err
	}
	return c.show(ctx, sources)
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
				return nil, closeAll, errors.New("- is there twice: the standard input can be read once")
			}
			standardInput = true
			sources = append(sources, traceview.NewSource("standard input", untilDone(ctx, c.plugin.streams.In)))
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

// untilDone reads from in, until ctx ends: nothing else ends a read of a pipe on which nobody writes.
func untilDone(ctx context.Context, in io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = w.Close() })
	return r
}

// show prints the traces of sources as they come, and what they come to at the end, or when the user wants to leave.
func (c *traceRead) show(ctx context.Context, sources []*traceview.Source) error {
	p := c.plugin
	out := bufio.NewWriterSize(p.streams.Out, 64<<10)
	s := &traceSink{out: out, summary: traceview.NewSummary(), filter: &c.filter, json: c.output == outputJSON, several: len(sources) > 1}
	if c.output == outputText {
		s.live = traceview.NewLive(out)
		s.live.Colour, s.live.Pods, s.live.Width = c.colour.of(p), s.several, p.width
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
		if s.json { // else the summary has said it
			for _, text := range problems {
				fmt.Fprintln(p.streams.ErrOut, "INCOMPLETE: "+table.Printable(text))
			}
		}
		return exitCode(report.ExitIncomplete)
	}
	return nil
}

// traceSink prints lines and adds them up.
type traceSink struct {
	out     *bufio.Writer
	live    *traceview.Live // nil: no line for each event
	summary *traceview.Summary
	filter  *traceview.Filter
	json    bool
	// several sources: a line must say whose it is.
	several bool
	named   []byte
}

// Line prints the line, and adds it up, unless nobody wants it.
func (s *traceSink) Line(from *traceview.Source, line *tracefmt.Line) error {
	if line.Record != nil && !s.filter.Keeps(line.Record) {
		s.summary.Exclude(from, line.Record)
		return nil
	}
	s.summary.Line(from, line)
	if s.live != nil && s.summary.Pods() > 1 { // in one file
		s.live.Pods = true
	}
	switch {
	case s.json:
		s.named = s.ofPod(s.named[:0], from, line)
		_, err := s.out.Write(s.named)
		return printed(err)
	case s.live != nil && line.Record != nil:
		return s.live.Show(from, line.Record)
	}
	return nil
}

// ofPod appends a line, which says whose it is where there are several Pods' files. Names of Pods may come twice.
func (s *traceSink) ofPod(b []byte, from *traceview.Source, line *tracefmt.Line) []byte {
	h := from.Header
	named := line.Record != nil && line.Record.Pod != "" || line.Account != nil && line.Account.Pod != ""
	if !s.several || named || line.Header != nil || h == nil || h.Pod == "" {
		return append(append(b, line.Raw...), '\n')
	}
	return tracefmt.AppendWithPod(b, line.Raw, h.Pod, h.PodUID)
}

// Damaged is told at the end.
func (s *traceSink) Damaged(from *traceview.Source, err error) error {
	s.summary.Damaged(from, err)
	return nil
}

// End notes that a source has ended.
func (s *traceSink) End(from *traceview.Source) { s.summary.End(from) }

// Idle shows what there is.
func (s *traceSink) Idle() error { return printed(s.out.Flush()) }

func printed(err error) error {
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
