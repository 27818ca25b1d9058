package htmlreport

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/packetview"
)

func (c *capturePage) pairs() Section {
	pairs := c.Pairs()
	t := Table{
		Caption: "Traffic between Pods and addresses, by bytes",
		Columns: []Column{
			{Title: "A"},
			{Title: "B"},
			{Title: "Bytes", Numeric: true},
			{Title: "A to B", Numeric: true},
			{Title: "B to A", Numeric: true},
			{Title: "Packets", Numeric: true},
			{Title: "Count", Numeric: true, Help: "Conversations"},
			{Title: "Resent", Numeric: true, Help: "TCP segments that were sent again"},
			{Title: "Resets", Numeric: true},
			{Title: "Shortest RTT", Numeric: true},
		},
		Omitted: omitted(len(pairs)-maxRows, "pair", "pairs"),
	}
	most := float64(0)
	for _, p := range pairs[:min(maxRows, len(pairs))] {
		most = max(most, float64(p.Bytes()))
		t.Rows = append(t.Rows, []Cell{
			textCell(p.A), textCell(p.B), withBar(bytesCell(p.Bytes()), most), bytesCell(p.AtoB.Bytes), bytesCell(p.BtoA.Bytes),
			countCell(p.Packets()), countCell(p.Conversations), alarmCell(p.TCP.Retransmissions, LevelWarning), alarmCell(p.TCP.Resets, LevelWarning),
			spanCell(p.RTT),
		})
	}
	return Section{
		ID: "pods", Title: "Pod against Pod", Tables: []Table{t},
		Intro: "Pods are named where the capture shows their addresses. A packet between two captured Pods was captured at both, and counts twice.",
	}
}

// omitted says how many rows a table lacks.
func omitted[T ~int | ~int64 | ~uint64](n T, one, many string) string {
	if n <= 0 {
		return ""
	}
	return plural(n, one, many) + " with less are left out."
}

func (c *capturePage) conversations() Section {
	t := Table{
		Caption: "Conversations, by bytes",
		Columns: []Column{
			{Title: "Protocol"},
			{Title: "A", Help: "A sent the first packet"},
			{Title: "B"},
			{Title: "Bytes", Numeric: true},
			{Title: "A to B", Numeric: true},
			{Title: "B to A", Numeric: true},
			{Title: "Packets A to B", Numeric: true},
			{Title: "Packets B to A", Numeric: true},
			{Title: "Lasted", Numeric: true},
			{Title: "Resent", Numeric: true, Help: "TCP segments that were sent again"},
			{Title: "Resets", Numeric: true},
			{Title: "RTT", Numeric: true},
		},
	}
	shown, most := c.selected(), float64(0)
	for _, v := range shown {
		most = max(most, float64(v.Bytes()))
	}
	for _, v := range shown {
		lasted := Cell{Text: span(v.Last.Sub(v.First)), Sort: float64(v.Last.Sub(v.First))}
		t.Rows = append(t.Rows, []Cell{
			textCell(v.Protocol), textCell(endpoint(v.A, v.AName)), textCell(endpoint(v.B, v.BName)), withBar(bytesCell(v.Bytes()), most),
			bytesCell(v.AtoB.Bytes), bytesCell(v.BtoA.Bytes), countCell(v.AtoB.Packets), countCell(v.BtoA.Packets), lasted,
			alarmCell(v.TCP.Retransmissions, LevelWarning), alarmCell(v.TCP.Resets, LevelWarning), spanCell(v.RTT),
		})
	}
	t.Omitted = omitted(len(c.Conversations)-len(shown), "conversation", "conversations")
	if c.Other.Packets > 0 {
		t.Omitted += fmt.Sprintf(" %s of further conversations were only counted, to bound memory.", plural(c.Other.Packets, "packet", "packets"))
	}
	return Section{ID: "conversations", Title: "Conversations", Intro: "A sent the first packet. The busiest come first, and then those with the most retransmissions and resets.", Tables: []Table{t}}
}

// selected returns the busiest conversations, and of the others those with most retransmissions and resets.
func (c *capturePage) selected() []*packetview.Conversation {
	var shown, troubled []*packetview.Conversation
	for i := range c.Conversations {
		v := &c.Conversations[i]
		switch {
		case i < maxRows:
			shown = append(shown, v)
		case trouble(v) > 0:
			troubled = append(troubled, v)
		}
	}
	slices.SortStableFunc(troubled, func(a, b *packetview.Conversation) int { return cmp.Compare(trouble(b), trouble(a)) })
	return append(shown, troubled[:min(troubledRows, len(troubled))]...)
}

func trouble(v *packetview.Conversation) uint64 { return v.TCP.Retransmissions + v.TCP.Resets }

func (c *capturePage) interfaces() Section {
	t := Table{
		Caption: "Interfaces at which packets were captured",
		Columns: []Column{
			{Title: "Pod"},
			{Title: "Interface"},
			{Title: "Node"},
			{Title: "Packets", Numeric: true},
			{Title: "Bytes", Numeric: true},
			{Title: "Dropped", Numeric: true},
			{Title: "Ended"},
		},
		Omitted: omitted(len(c.Interfaces)-maxRows+c.OtherInterfaces, "interface", "interfaces"),
	}
	if len(c.Interfaces) <= maxRows && c.OtherInterfaces == 0 {
		t.Omitted = ""
	}
	for _, i := range c.Interfaces[:min(maxRows, len(c.Interfaces))] {
		ended := Cell{Text: "no statistics", Level: LevelWarning}
		switch {
		case i.Late:
			ended.Text = "packets follow its statistics"
		case i.Ended:
			ended = textCell(ending(i.End))
		}
		t.Rows = append(t.Rows, []Cell{
			textCell(cmp.Or(i.Pod, i.Description, none)), textCell(i.Name), textCell(cmp.Or(i.Node, none)), countCell(i.Captured.Packets), bytesCell(i.Captured.Bytes),
			alarmCell(i.Dropped, LevelWarning), ended,
		})
	}
	return Section{ID: "interfaces", Title: "Where it was captured", Tables: []Table{t}}
}

func ending(at time.Time) string {
	if at.IsZero() {
		return "yes"
	}
	return moment(at)
}
