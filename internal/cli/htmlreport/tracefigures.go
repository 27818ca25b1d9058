package htmlreport

import (
	"fmt"
	"time"
)

func (p *tracePage) figures() []Figure {
	var failed, measured uint64
	var total time.Duration
	for i := range p.Calls {
		failed += p.Calls[i].Failed
		measured += p.Calls[i].Measured
		total += p.Calls[i].Total
	}
	all := []Figure{
		{Label: "Events", Value: number(p.Events), Note: plural(p.Pods, "Pod", "Pods")},
		alarm(Figure{Label: "Lost", Value: number(p.lost()), Note: "events that are in no file"}, p.lost(), LevelWarning),
		{Label: "Time in calls", Value: span(total), Note: plural(measured, "measured call", "measured calls")},
	}
	if len(p.Slowest) > 0 {
		all = append(all, Figure{Label: "Slowest call", Value: span(p.Slowest[0].Took), Note: p.Slowest[0].Call})
	}
	all = append(all,
		alarm(Figure{Label: "Failed calls", Value: number(failed), Note: percent(failed, p.Events) + " of all events"}, failed, LevelPlain),
		Figure{Label: "Processes", Value: number(len(p.Processes))},
		Figure{Label: "Files", Value: number(len(p.Files))},
	)
	if len(p.Connections) > 0 {
		all = append(all, Figure{Label: "Peers", Value: number(len(p.Connections)), Note: "of connections"})
	}
	return all
}

func (p *tracePage) findings() []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if n := p.lost(); n > 0 {
		add("%s lost: figures below are of the events in the file.", plural(n, "event was", "events were"))
	}
	if len(p.Slowest) > 0 && p.Slowest[0].Took >= 10*time.Millisecond {
		s := p.Slowest[0]
		add("%s of %s took %s: %s", s.Call, s.Comm, span(s.Took), s.About)
	}
	if len(p.Files) > 0 && p.Files[0].Time > 0 {
		add("Calls on %s took %s together.", p.Files[0].Path, span(p.Files[0].Time))
	}
	if len(p.Failures) > 0 {
		f := p.Failures[0]
		add("%s failed %s with %s, most often: %s", f.Call, plural(f.Count, "time", "times"), f.Errno, f.MostOften)
	}
	for _, c := range p.Connections {
		if c.Failed > 0 {
			add("%s of %s %s failed.", number(c.Failed), plural(c.Count, "connection", "connections"), c.Name)
			break
		}
	}
	return all[:min(maxFindings, len(all))]
}

func (p *tracePage) timeline() Section {
	t := p.trace.timeline
	seconds := t.Width().Seconds()
	events, failed := t.Counts(seriesEvents), t.Counts(seriesFailed)
	s := Section{ID: "timeline", Title: "Timeline", Intro: "The file has no events."}
	if len(events) == 0 {
		return s
	}
	s.Intro = "Time is in seconds since " + p.moment(t.Start()) + ". Each step is " + span(t.Width()) + ". Drag to zoom, double-click to reset."
	x := make([]float64, len(events))
	for i := range x {
		x[i] = float64(i) * seconds
	}
	s.Charts = []Chart{{
		ID: "chart-events", Title: "Events per second", Kind: TimeChart, Unit: "count", X: x,
		Label:  fmt.Sprintf("Events per second over %s", span(p.Last.Sub(p.First))),
		Series: []Series{{Label: "events/s", Colour: "accent", Values: scaled(events, 1/seconds)}},
	}, {
		ID: "chart-failed", Title: "Failed calls", Kind: TimeChart, Unit: "count", X: x, Label: "Failed calls over time",
		Series: []Series{{Label: "failed", Colour: "reset", Bars: true, Values: scaled(failed, 1)}},
	}}
	return s
}
