package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/cli/tail"
)

// lineFormat is the format of events that are shown while a trace runs.
type lineFormat int

const (
	linesNone lineFormat = iota
	linesText
	linesJSON
)

// lineFlags are the flags for events that are shown while a trace runs.
type lineFlags struct {
	quiet  bool
	top    bool
	colour colourFlag
}

// choose sets how events are shown. They are not shown as text if something else uses standard output.
func (f *lineFlags) choose(p *plugin, opts *saveOptions, form capture.Form) error {
	opts.colour = f.colour.enabled(p)
	opts.top = f.top && p.terminal != nil
	asJSON := opts.out.Path == outputJSON // as for trace read
	switch {
	case f.top && form == capture.Flap:
		return errors.New("--top counts the lines of format ndjson: omit --format, or omit --top")
	case asJSON && form == capture.Flap:
		return errors.New("-o json: a trace of format flap has no JSON lines: name a directory with -o, or omit --format")
	case asJSON && (opts.json || f.quiet):
		return errors.New("-o json prints the events, --json a summary, and --quiet no events: choose one of the three. To save to a file of that name, write ./json")
	case asJSON:
		opts.out.Path, opts.lines = "", linesJSON
	case form == capture.NDJSON && !f.quiet && !opts.top && !opts.json && !opts.out.Streams():
		opts.lines = linesText
	}
	return nil
}

// eventLines shows events while a trace runs, and counts them. It is a companion.
type eventLines struct {
	tail      *tail.Tail
	shown     uint64
	streamErr error
}

func (p *plugin) newEventLines(ctx context.Context, endpoint *results.Client, display live.Display, opts saveOptions) *eventLines {
	write := func(text []byte) error {
		_, err := p.streams.Out.Write(text)
		return err
	}
	if p.width != nil { // a terminal, probably shared with the display
		write = func(text []byte) error { return display.Print(p.streams.Out, text) }
	}
	return &eventLines{tail: tail.New(ctx, tail.Options{
		Stream: endpoint.Live, Print: write, JSON: opts.lines == linesJSON, Terminal: p.width != nil, Colour: opts.colour, Width: p.width,
		OnPrintError: func() { p.interrupts.deliver() }, // a reader like head has exited, so the trace can be stopped
	})}
}

func (l *eventLines) update(u results.Update) { l.tail.Update(u) }

func (l *eventLines) finish(ctx context.Context) { l.shown, l.streamErr = l.tail.Finish(ctx) }

// addNote adds a note to the report if some events were not shown.
func (l *eventLines) addNote(saved capture.Saved, r *report.Report) {
	if r.Total.EventCounts == nil {
		return
	}
	total := uint64(max(0, r.Total.Events))
	if saved.Trace != nil {
		total = saved.Trace.Events()
	}
	if l.shown >= total {
		return
	}
	text := fmt.Sprintf("%d of %d events were not shown while the trace ran", total-l.shown, total)
	if r.Path != "" {
		text += "; they are in " + r.Path
	}
	if l.streamErr != nil {
		text += " (" + l.streamErr.Error() + ")"
	}
	r.Notes = append(r.Notes, text)
}
