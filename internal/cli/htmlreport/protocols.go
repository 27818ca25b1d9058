package htmlreport

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sonde-operator/sonde/internal/cli/packetview"
)

func (c *capturePage) tcp() Section {
	t := c.TCP
	other := t.Retransmissions - t.Fast - t.Spurious
	counts := Table{
		Caption: "Segments, as Wireshark's TCP analysis tells them apart",
		Columns: []Column{{Title: "What"}, {Title: "Count", Numeric: true}, {Title: "Meaning"}},
		Rows: [][]Cell{
			{textCell("Retransmission"), alarmCell(other, LevelWarning), textCell("sent again after a timeout")},
			{textCell("Fast retransmission"), alarmCell(t.Fast, LevelWarning), textCell("sent again after duplicate acknowledgements")},
			{textCell("Spurious retransmission"), alarmCell(t.Spurious, LevelWarning), textCell("sent again although it was acknowledged")},
			{textCell("Out of order"), countCell(t.OutOfOrder), textCell("came after a later segment")},
			{textCell("Reset"), alarmCell(t.Resets, LevelWarning), textCell("segments with RST: a connection was refused or aborted")},
		},
	}
	s := Section{
		ID: "tcp", Title: "TCP", Tables: []Table{counts},
		Intro: "The round-trip time is the initial one: from a SYN to the acknowledgement that ends the handshake, where the packets were captured.",
	}
	s.withDurations("rtt", "Round-trip times of connections", &c.RTT)
	return s
}

// withDurations adds the distribution of durations to a section.
func (s *Section) withDurations(id, title string, d *packetview.Durations) {
	if d.Count == 0 {
		return
	}
	s.Tables = append([]Table{{
		Caption: title,
		Columns: []Column{
			{Title: "Count", Numeric: true},
			{Title: "Shortest", Numeric: true},
			{Title: "Median", Numeric: true},
			{Title: "95% within", Numeric: true},
			{Title: "99% within", Numeric: true},
			{Title: "Longest", Numeric: true},
		},
		Rows: [][]Cell{{
			countCell(d.Count), {Text: span(d.Shortest)}, {Text: span(d.Quantile(.5))}, {Text: span(d.Quantile(.95))}, {Text: span(d.Quantile(.99))}, {Text: span(d.Max)},
		}},
	}}, s.Tables...)
	chart := Chart{
		ID: "chart-" + id, Title: title, Kind: BarChart, Unit: "count", Label: fmt.Sprintf("%s: median %s, longest %s", title, span(d.Quantile(.5)), span(d.Max)),
		Series: []Series{{Label: "count", Colour: "accent"}},
	}
	for i, b := range d.Histogram() {
		chart.bar(i, "≥ "+bound(b.From), b.Count)
	}
	s.Charts = append(s.Charts, chart)
}

func (c *Chart) bar(i int, label string, n uint64) {
	c.X = append(c.X, float64(i))
	c.Labels = append(c.Labels, label)
	c.Series[0].Values = append(c.Series[0].Values, float64(n))
}

func (c *capturePage) dns() Section {
	d := &c.DNS
	codes := Table{Caption: "Responses by code", Columns: []Column{{Title: "Code"}, {Title: "Responses", Numeric: true}, {Title: "Share", Numeric: true}}}
	for _, code := range slices.SortedFunc(maps.Keys(d.Codes), byCount(d.Codes)) {
		level := LevelPlain
		if code != "NOERROR" {
			level = LevelWarning
		}
		codes.Rows = append(codes.Rows, []Cell{{Text: code, Level: level}, countCell(d.Codes[code]), {Text: percent(d.Codes[code], d.Responses), Sort: float64(d.Codes[code])}})
	}
	if d.Unanswered > 0 {
		codes.Rows = append(codes.Rows, []Cell{{Text: "no response", Level: LevelWarning}, countCell(d.Unanswered), {Text: none}})
	}
	lookups := slices.Collect(maps.Values(d.Lookups))
	slices.SortFunc(lookups, func(a, b *packetview.Lookup) int {
		return cmp.Or(cmp.Compare(b.Failed(), a.Failed()), cmp.Compare(b.Queries, a.Queries), strings.Compare(a.Name, b.Name), strings.Compare(a.Type, b.Type))
	})
	names := Table{
		Caption: "Names, by failures",
		Columns: []Column{
			{Title: "Name"},
			{Title: "Type"},
			{Title: "Queries", Numeric: true},
			{Title: "Failed", Numeric: true},
			{Title: "Repeated", Numeric: true},
			{Title: "Codes"},
			{Title: "Mean", Numeric: true},
			{Title: "Longest", Numeric: true},
		},
		Omitted: omitted(len(lookups)-maxRows, "name", "names"),
	}
	if d.Other > 0 {
		names.Omitted += fmt.Sprintf(" %s of further names were only counted.", plural(d.Other, "query", "queries"))
	}
	for _, l := range lookups[:min(maxRows, len(lookups))] {
		names.Rows = append(names.Rows, []Cell{
			textCell(l.Name), textCell(l.Type), countCell(l.Queries), alarmCell(l.Failed(), LevelWarning), countCell(l.Repeated),
			textCell(codesOf(l)), spanCell(l.Took.Mean()), spanCell(l.Took.Max),
		})
	}
	s := Section{
		ID: "dns", Title: "DNS", Tables: []Table{codes, names},
		Intro: "Queries on port 53, and the time to their first response. A query that is sent again within 5 s counts as repeated.",
	}
	s.withDurations("dns", "Time from query to response", &d.Took)
	return s
}

func byCount[K cmp.Ordered](counts map[K]uint64) func(a, b K) int {
	return func(a, b K) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) }
}

func codesOf(l *packetview.Lookup) string {
	var parts []string
	for _, code := range slices.SortedFunc(maps.Keys(l.Codes), byCount(l.Codes)) {
		parts = append(parts, fmt.Sprintf("%s %d", code, l.Codes[code]))
	}
	if l.Unanswered > 0 {
		parts = append(parts, fmt.Sprintf("no response %d", l.Unanswered))
	}
	return strings.Join(parts, ", ")
}

func (c *capturePage) http() Section {
	h := &c.HTTP
	statuses := Table{Caption: "Responses by status", Columns: []Column{{Title: "Status"}, {Title: "Responses", Numeric: true}, {Title: "Share", Numeric: true}}}
	for _, status := range slices.Sorted(maps.Keys(h.Statuses)) {
		n := h.Statuses[status]
		statuses.Rows = append(statuses.Rows, []Cell{
			{Text: strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status))), Level: statusLevel(status)},
			countCell(n),
			{Text: percent(n, h.Responses), Sort: float64(n)},
		})
	}
	if h.Unanswered > 0 {
		statuses.Rows = append(statuses.Rows, []Cell{{Text: "no response", Level: LevelWarning}, countCell(h.Unanswered), {Text: none}})
	}
	routes := slices.Collect(maps.Values(h.Routes))
	slices.SortFunc(routes, func(a, b *packetview.Route) int {
		return cmp.Or(cmp.Compare(b.Took.Sum, a.Took.Sum), cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Path, b.Path), strings.Compare(a.Method, b.Method), strings.Compare(a.Host, b.Host))
	})
	paths := Table{
		Caption: "Requests, by the time that they took together",
		Columns: []Column{
			{Title: "Method"},
			{Title: "Host"},
			{Title: "Path"},
			{Title: "Requests", Numeric: true},
			{Title: "4xx and 5xx", Numeric: true},
			{Title: "No response", Numeric: true},
			{Title: "Median", Numeric: true},
			{Title: "95% within", Numeric: true},
			{Title: "Longest", Numeric: true},
			{Title: "Together", Numeric: true},
		},
		Omitted: omitted(len(routes)-maxRows, "path", "paths"),
	}
	most := float64(0)
	for _, r := range routes[:min(maxRows, len(routes))] {
		most = max(most, float64(r.Took.Sum))
		paths.Rows = append(paths.Rows, []Cell{
			textCell(r.Method), textCell(r.Host), textCell(r.Path), countCell(r.Requests), alarmCell(r.Failed(), LevelWarning), alarmCell(r.Unanswered, LevelWarning),
			spanCell(r.Took.Quantile(.5)), spanCell(r.Took.Quantile(.95)), spanCell(r.Took.Max), withBar(spanCell(r.Took.Sum), most),
		})
	}
	if h.Other > 0 {
		paths.Omitted += fmt.Sprintf(" %s of further paths were only counted.", plural(h.Other, "request", "requests"))
	}
	s := Section{
		ID: "http", Title: "HTTP", Tables: []Table{statuses, paths},
		Intro: "HTTP/1 without encryption, on any port. The latency is the time from the last byte of a request to the last byte of its response. Queries in URLs are not shown.",
	}
	s.withDurations("http", "Latency of requests", &h.Took)
	return s
}

func statusLevel(status int) Level {
	switch {
	case status >= 500:
		return LevelBad
	case status >= 400:
		return LevelWarning
	}
	return LevelPlain
}
