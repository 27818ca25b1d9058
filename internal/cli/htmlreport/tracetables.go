package htmlreport

import (
	"fmt"
)

func (p *tracePage) calls() Section {
	t := Table{
		Caption: "Calls, by the time that they took together",
		Columns: []Column{
			{Title: "Call"},
			{Title: "Together", Numeric: true},
			{Title: "Count", Numeric: true},
			{Title: "Failed", Numeric: true},
			{Title: "Mean", Numeric: true},
			{Title: "Longest", Numeric: true},
		},
		Omitted: omitted(len(p.Calls)-maxRows, "call", "calls") + others(p.OtherCalls, "call with another name", "calls with other names"),
	}
	for _, c := range p.Calls[:min(maxRows, len(p.Calls))] {
		t.Rows = append(t.Rows, []Cell{
			textCell(c.Name), withBar(spanCell(c.Total), float64(p.Calls[0].Total)), countCell(c.Count), alarmCell(c.Failed, LevelWarning),
			spanCell(c.Mean()), spanCell(c.Longest),
		})
	}
	s := Section{ID: "calls", Title: "Time by call", Intro: "A call that waits, like epoll_wait, takes time without work.", Tables: []Table{t}}
	chart := Chart{
		ID: "chart-latency", Title: "How long calls took", Kind: BarChart, Unit: "count", Label: "Number of calls by duration, in powers of two",
		Series: []Series{{Label: "calls", Colour: "accent"}},
	}
	for i, b := range p.Latencies {
		chart.bar(i, "≥ "+bound(b.From), b.Count)
	}
	if len(p.Latencies) > 0 {
		s.Charts = []Chart{chart}
	}
	return s
}

// others says how many events were only counted.
func others(n uint64, one, many string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" %s only counted, to bound memory.", plural(n, one+" was", many+" were"))
}

func (p *tracePage) files() Section {
	t := Table{
		Caption: "Files, by the time of the calls on them",
		Columns: []Column{
			{Title: "File"}, {Title: "Time", Numeric: true}, {Title: "Calls", Numeric: true}, {Title: "Read", Numeric: true}, {Title: "Written", Numeric: true},
		},
		Omitted: omitted(len(p.Files)-maxRows, "file", "files") + others(p.OtherFiles, "call on another file", "calls on other files"),
	}
	for _, f := range p.Files[:min(maxRows, len(p.Files))] {
		t.Rows = append(t.Rows, []Cell{
			textCell(f.Path), withBar(spanCell(f.Time), float64(p.Files[0].Time)), countCell(f.Calls), bytesCell(int64(f.Read)), bytesCell(int64(f.Written)),
		})
	}
	return Section{ID: "files", Title: "Time by file", Tables: []Table{t}}
}

func (p *tracePage) slowest() Section {
	t := Table{
		Caption: "The slowest calls",
		Columns: []Column{
			{Title: "Took", Numeric: true}, {Title: "Ended"}, {Title: "Call"}, {Title: "Result"}, {Title: "About"}, {Title: "Thread"}, {Title: "Process"}, {Title: "Pod"},
		},
	}
	for _, c := range p.Slowest {
		t.Rows = append(t.Rows, []Cell{
			withBar(spanCell(c.Took), float64(p.Slowest[0].Took)), textCell(c.Ended), textCell(c.Call), textCell(c.Result), textCell(c.About),
			textCell(c.Comm), textCell(c.Process), textCell(c.Pod),
		})
	}
	s := Section{ID: "slowest", Title: "Slowest calls", Tables: []Table{t}}
	if len(t.Rows) == 0 {
		s.Intro, s.Tables = "The duration of the calls was not measured.", nil
	}
	return s
}

func (p *tracePage) failures() Section {
	t := Table{
		Caption: "Failed calls, by number",
		Columns: []Column{{Title: "Call"}, {Title: "Error"}, {Title: "Count", Numeric: true}, {Title: "Most often"}},
		Omitted: omitted(len(p.Failures)-maxRows, "pair of call and error", "pairs of call and error") + others(p.OtherFailures, "other failure", "other failures"),
	}
	for _, f := range p.Failures[:min(maxRows, len(p.Failures))] {
		t.Rows = append(t.Rows, []Cell{textCell(f.Call), textCell(f.Errno), withBar(countCell(f.Count), float64(p.Failures[0].Count)), textCell(f.MostOften)})
	}
	s := Section{ID: "errors", Title: "Errors", Tables: []Table{t}}
	if len(t.Rows) == 0 {
		s.Intro, s.Tables = "No call failed.", nil
	}
	return s
}

func (p *tracePage) connections() Section {
	t := Table{
		Caption: "Connections by peer, by bytes",
		Columns: []Column{
			{Title: "Peer"},
			{Title: "Connections", Numeric: true},
			{Title: "Failed", Numeric: true},
			{Title: "Open", Numeric: true},
			{Title: "Sent", Numeric: true},
			{Title: "Received", Numeric: true},
			{Title: "Retransmits", Numeric: true},
			{Title: "Resets", Numeric: true},
			{Title: "Longest RTT", Numeric: true},
		},
		Omitted: omitted(len(p.Connections)-maxRows, "peer", "peers") + others(p.OtherPeers, "event of another peer", "events of other peers"),
	}
	for _, c := range p.Connections[:min(maxRows, len(p.Connections))] {
		t.Rows = append(t.Rows, []Cell{
			textCell(c.Name), countCell(c.Count), alarmCell(c.Failed, LevelWarning), countCell(c.Open), bytesCell(int64(c.Sent)), bytesCell(int64(c.Received)),
			alarmCell(c.Retransmits, LevelWarning), alarmCell(c.Resets, LevelWarning), spanCell(c.RTT),
		})
	}
	return Section{ID: "connections", Title: "Connections", Intro: "All connections with one address, or of one client, are one row.", Tables: []Table{t}}
}

// processRows is the largest number of processes in the table: the tree needs more rows than the other tables.
const processRows = 3 * maxRows

func (p *tracePage) processes() Section {
	t := Table{
		Caption: "Processes, each below its parent",
		Columns: []Column{{Title: "Command"}, {Title: "Process"}, {Title: "Pod"}, {Title: "Started"}, {Title: "Ended with"}, {Title: "Events", Numeric: true}},
	}
	if more := len(p.Processes) - processRows; more > 0 {
		t.Omitted = plural(more, "further process is", "further processes are") + " left out."
	}
	t.Omitted += others(p.OtherEvents, "event of another process", "events of other processes")
	for _, one := range p.Processes[:min(processRows, len(p.Processes))] {
		started, exit := "before", one.Exit
		if !one.Started.IsZero() {
			started = one.Started.UTC().Format("15:04:05.000")
		}
		if !one.Ended {
			exit = "still there"
		}
		t.Rows = append(t.Rows, []Cell{
			{Text: one.Command, Depth: one.Depth}, textCell(one.Name), textCell(one.Pod), textCell(started), textCell(exit), countCell(one.Events),
		})
	}
	return Section{ID: "processes", Title: "Processes", Tables: []Table{t}}
}
