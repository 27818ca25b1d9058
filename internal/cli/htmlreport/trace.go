package htmlreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/timeline"
	"github.com/sonde-operator/sonde/internal/cli/traceview"
	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Series of a trace's timeline.
const (
	seriesEvents = iota
	seriesFailed
	traceSeries
)

const (
	// maxHeaders limits the headers that are kept: one for each traced Pod.
	maxHeaders = 1 << 10
	// maxGroups limits the groups of a header, and maxHeaderText the characters of a text of it.
	maxGroups     = 16
	maxHeaderText = 512
)

// Trace collects what the page of a trace shows. It is a traceview.Sink.
type Trace struct {
	// Uptime says that the times of the events are the node's uptime, and not the time of day.
	Uptime bool

	summary  *traceview.Summary
	timeline *timeline.Timeline
	headers  []*tracefmt.Header
}

// NewTrace returns an empty one.
func NewTrace() *Trace {
	return &Trace{summary: traceview.NewSummary(), timeline: timeline.New(traceSeries)}
}

// Line adds a line.
func (t *Trace) Line(from *traceview.Source, line *tracefmt.Line) error {
	t.summary.Line(from, line)
	if line.Header != nil && len(t.headers) < maxHeaders {
		t.headers = append(t.headers, shownPart(line.Header))
	}
	if r := line.Record; r != nil {
		at := uint64(max(0, r.Time.UnixNano()))
		t.timeline.Add(seriesEvents, at, 1)
		if traceview.Failed(r) {
			t.timeline.Add(seriesFailed, at, 1)
		}
	}
	return nil
}

// shownPart returns what the page shows of a header: a line may have 1 MiB.
func shownPart(h *tracefmt.Header) *tracefmt.Header {
	short := func(s string) string { return table.Truncate(s, maxHeaderText) }
	shown := &tracefmt.Header{Namespace: short(h.Namespace), Target: short(h.Target), Pod: short(h.Pod), Node: short(h.Node)}
	for _, group := range h.Groups[:min(len(h.Groups), maxGroups)] {
		shown.Groups = append(shown.Groups, short(group))
	}
	return shown
}

// Damaged counts a line that cannot be read.
func (t *Trace) Damaged(from *traceview.Source, err error) error {
	t.summary.Damaged(from, err)
	return nil
}

// End adds the end of a source.
func (t *Trace) End(from *traceview.Source) { t.summary.End(from) }

// Idle does nothing.
func (t *Trace) Idle() error { return nil }

// Page returns the page of the trace that was read from a file.
func (t *Trace) Page(file string, outcome Outcome) *Page {
	p := tracePage{t, t.summary.Figures()}
	page := &Page{
		Kind: "Trace of system calls", Title: p.title(file), Facts: p.facts(file), Verdict: p.verdict(outcome), Figures: p.figures(),
		Findings: p.findings(), Sections: []Section{p.timeline(), p.calls(), p.files(), p.slowest(), p.failures()},
	}
	if len(p.Connections) > 0 {
		page.Sections = append(page.Sections, p.connections())
	}
	page.Sections = append(page.Sections, p.processes())
	return page
}

type tracePage struct {
	trace *Trace
	traceview.Figures
}

// title names the target, or else the file.
func (p *tracePage) title(file string) string {
	if len(p.trace.headers) == 0 {
		return file
	}
	h := p.trace.headers[0]
	if h.Target == "" {
		return cmp.Or(h.Pod, file)
	}
	return h.Target + " in namespace " + h.Namespace
}

func (p *tracePage) facts(file string) []Fact {
	facts := []Fact{{"Source", file}}
	if p.Events > 0 {
		facts = append(facts, Fact{"Began", p.moment(p.First)}, Fact{"Lasted", span(p.Last.Sub(p.First))})
	}
	var pods, nodes, groups []string
	for _, h := range p.trace.headers {
		pods, nodes, groups = append(pods, h.Pod), append(nodes, h.Node), append(groups, h.Groups...)
	}
	for _, f := range []struct {
		name string
		all  []string
	}{{"Pods", pods}, {"Nodes", nodes}, {"Groups of calls", groups}} {
		if all := distinct(f.all); len(all) > 0 {
			facts = append(facts, Fact{f.name, listed(all, 6)})
		}
	}
	return facts
}

// moment writes the time of an event.
func (p *tracePage) moment(t time.Time) string {
	if p.trace.Uptime {
		return "at an uptime of " + span(time.Duration(t.UnixNano()))
	}
	return moment(t)
}

func distinct(all []string) []string {
	all = slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == "" })
	slices.Sort(all)
	return slices.Compact(all)
}

func (p *tracePage) lost() uint64 {
	var n uint64
	for _, one := range p.Lost {
		n += one.Count
	}
	return n
}

// notReported names the events that a node's kernel does not report. The notes of a complete trace have them already.
func (p *tracePage) notReported(o Outcome) []string {
	note := p.trace.summary.NotReported()
	if note == "" || o.Known && o.Complete {
		return nil
	}
	return []string{note}
}

func (p *tracePage) verdict(o Outcome) Verdict {
	v := Verdict{Level: LevelGood, Text: "Complete: the file has every event that the tracer wrote."}
	if !o.Known {
		v = Verdict{Level: LevelPlain, Text: "The file shows no loss. Pods, and the first events of a Pod, can be missing nevertheless: only " +
			"the summary of the trace names them."}
	}
	v.Reasons = append(slices.Clone(o.Problems), o.Notes...)
	if lost := p.lost(); lost > 0 {
		v.lower(LevelWarning, "Not every event is in the file: some were lost.")
		if !o.Known {
			var parts []string
			for _, one := range p.Lost {
				parts = append(parts, fmt.Sprintf("%s %s", one.Name, number(one.Count)))
			}
			v.Reasons = append(v.Reasons, plural(lost, "event was", "events were")+" lost, by place: "+strings.Join(parts, ", "))
		}
	}
	v.Reasons = append(v.Reasons, p.notReported(o)...)
	problems := p.trace.summary.Problems()
	switch {
	case o.Known && !o.Complete, !o.Known && !p.trace.Uptime && len(problems) > 0:
		v.Level, v.Text = LevelBad, "Incomplete: events are or may be missing."
	case !o.Known && p.trace.Uptime:
		v.lower(LevelWarning, "It is not known whether the file is complete.")
		v.Reasons = append(v.Reasons, "Files of FLAP do not say it.")
	}
	if !o.Known && !p.trace.Uptime { // files of FLAP have no account
		v.Reasons = append(v.Reasons, problems...)
	}
	return v
}
