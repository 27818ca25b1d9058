package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/cli/tail"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// lineForm is how events are shown while a trace runs.
type lineForm int

const (
	linesNone lineForm = iota
	linesText
	linesJSON
)

// lineFlags are what a user says of it.
type lineFlags struct {
	quiet  bool
	colour colourFlag
}

// choose sets how events are shown. What else wants the standard output has it.
func (f *lineFlags) choose(p *plugin, how *saving, form capture.Form) error {
	how.colour = f.colour.of(p)
	asJSON := how.out.Path == outputJSON // as in trace read
	switch {
	case asJSON && form == capture.Flap:
		return errors.New("-o json: a trace of format flap has no JSON lines: name a directory with -o, or leave --format out")
	case asJSON && (how.json || f.quiet):
		return errors.New("-o json prints the events, --json a summary of them, and --quiet none: choose one of the three; a file of that name is ./json")
	case asJSON:
		how.out.Path, how.lines = "", linesJSON
	case form == capture.NDJSON && !f.quiet && !how.json && !how.out.Streams():
		how.lines = linesText
	}
	return nil
}

// shownLines shows events while a trace runs, and knows afterwards how many.
type shownLines struct {
	tail    *tail.Tail // nil: nobody wants them
	shown   uint64
	trouble error
}

func (p *plugin) showLines(ctx context.Context, endpoint *results.Client, display live.Display, how saving) *shownLines {
	if how.lines == linesNone {
		return &shownLines{}
	}
	write := func(text []byte) error {
		_, err := p.streams.Out.Write(text)
		return err
	}
	if p.width != nil { // a terminal, most likely that of the display
		write = func(text []byte) error { return display.Print(p.streams.Out, text) }
	}
	return &shownLines{tail: tail.New(ctx, tail.Options{
		Stream: endpoint.Live, Print: write, JSON: how.lines == linesJSON, Colour: how.colour, Width: p.width,
		OnPrintError: func() { p.interrupts.soften() }, // as head has it: whoever has seen enough wants no more of it
	})}
}

func (l *shownLines) heard(u results.Update) {
	if l.tail != nil {
		l.tail.Update(u)
	}
}

// rest shows Pods whose traces had ended before anybody told of their files.
func (l *shownLines) rest(pods []v1alpha1.PodResult) {
	for _, p := range pods {
		u := results.Update{Pod: p.Name, UID: p.UID, Account: &account.Account{}}
		for _, f := range p.Files {
			u.Account.Files = append(u.Account.Files, account.File{Name: f.Name, Bytes: f.Bytes})
		}
		l.heard(u)
	}
}

func (l *shownLines) finish(ctx context.Context) {
	if l.tail != nil {
		l.shown, l.trouble = l.tail.Finish(ctx)
	}
}

// note says how many events of a report were not shown; nothing where all were.
func (l *shownLines) note(saved capture.Saved, r *report.Report) {
	if l.tail == nil || r.Total.EventCounts == nil {
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
	if l.trouble != nil {
		text += " (" + l.trouble.Error() + ")"
	}
	r.Notes = append(r.Notes, text)
}
