package htmlreport

import (
	"fmt"
	"slices"

	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/cli/packetview"
)

func (c *capturePage) timeline() Section {
	t := c.Timeline
	seconds := t.Width().Seconds()
	bytes, repeats, resets := t.Counts(packetview.SeriesBytes), t.Counts(packetview.SeriesRetransmissions), t.Counts(packetview.SeriesResets)
	x := make([]float64, len(bytes))
	for i := range x {
		x[i] = float64(i) * seconds
	}
	marks, note := c.drops()
	s := Section{ID: "timeline", Title: "Timeline", Intro: "Time is in seconds since " + moment(t.Start()) + ". Each step is " + span(t.Width()) + ". Drag to zoom, double-click to reset."}
	if len(bytes) == 0 {
		s.Intro = "The file has no packets."
		return s
	}
	s.Charts = []Chart{{
		ID: "chart-bytes", Title: "Bytes per second", Note: note, Kind: TimeChart, Unit: "bytes", X: x, Marks: marks,
		Label:  fmt.Sprintf("Bytes per second over %s, at most %s", span(c.Last.Sub(c.First)), live.Bytes(int64(float64(slices.Max(bytes))/seconds))),
		Series: []Series{{Label: "bytes/s", Colour: "accent", Values: scaled(bytes, 1/seconds)}},
	}, {
		ID: "chart-packets", Title: "Packets per second", Kind: TimeChart, Unit: "count", X: x, Marks: marks, Label: "Packets per second",
		Series: []Series{{Label: "packets/s", Colour: "accent", Values: scaled(t.Counts(packetview.SeriesPackets), 1/seconds)}},
	}}
	if c.TCP.Retransmissions+c.TCP.Resets > 0 {
		s.Charts = append(s.Charts, Chart{
			ID: "chart-trouble", Title: "Retransmissions and resets", Kind: TimeChart, Unit: "count", X: x,
			Label: fmt.Sprintf("%s and %s over time", plural(c.TCP.Retransmissions, "retransmission", "retransmissions"), plural(c.TCP.Resets, "reset", "resets")),
			Series: []Series{
				{Label: "retransmissions", Colour: "retransmit", Bars: true, Values: scaled(repeats, 1)},
				{Label: "resets", Colour: "reset", Bars: true, Values: scaled(resets, 1)},
			},
		})
	}
	return s
}

// drops returns the spans in which packets were dropped, and a sentence about them.
func (c *capturePage) drops() (marks []Mark, note string) {
	start := c.Timeline.Start()
	for _, i := range c.Interfaces {
		if i.Dropped == 0 || len(marks) >= maxRows {
			continue
		}
		from, to := i.Start, i.End
		if from.IsZero() {
			from = c.First
		}
		if to.IsZero() {
			to = c.Last
		}
		marks = append(marks, Mark{round(max(0, from.Sub(start).Seconds())), round(to.Sub(start).Seconds())})
	}
	if len(marks) > 0 {
		note = plural(c.dropped(), "packet was", "packets were") + " dropped within the time of the red strip. The file does not say when exactly."
	}
	return marks, note
}

func scaled(counts []uint64, by float64) []float64 {
	all := make([]float64, len(counts))
	for i, n := range counts {
		all[i] = round(float64(n) * by)
	}
	return all
}

// round keeps the page small.
func round(v float64) float64 { return float64(int64(v*1000+.5)) / 1000 }
