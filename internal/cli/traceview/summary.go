package traceview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Limits of a Summary, which keep it below 100 MiB: a trace can have any size and name any number of files.
const (
	maxTraces    = 1 << 10
	maxGroups    = 64
	maxCalls     = 1 << 10
	maxFiles     = 1 << 15
	maxFailures  = 1 << 12
	maxProcesses = 1 << 14
	maxPeers     = 1 << 12
	maxText      = 512 // characters of a path or a command
	maxWord      = 64  // characters of a name
)

// Largest number of rows of the tables.
const (
	topRows     = 10
	callRows    = 20
	processRows = 50
)

// Summary adds up the events of traces. Its memory is bounded; beyond its limits it only counts.
type Summary struct {
	traces      map[string]*trace
	missing     map[string]bool // events that a node's kernel does not report
	groups      map[string]uint64
	otherGroups uint64
	events      uint64
	excluded    uint64
	first, last time.Time

	lost        lostTable
	calls       callTable
	files       fileTable
	connections connectionTable
	slowCalls   slowCalls
	failures    failureTable
	processes   processTable
}

// trace is one trace of one Pod.
type trace struct {
	name     string
	id       string // of the trace and the Pod
	events   uint64
	written  uint64
	accounts int
	ended    []string // the reasons for which a trace ended early
	damaged  int
	damage   string // the first damaged line
}

// NewSummary returns an empty one.
func NewSummary() *Summary {
	return &Summary{
		traces: map[string]*trace{}, missing: map[string]bool{}, groups: map[string]uint64{}, lost: lostTable{places: map[string]uint64{}, calls: map[string]uint64{}},
		calls: callTable{calls: map[string]*callCount{}}, files: fileTable{files: map[string]*fileCount{}},
		connections: connectionTable{peers: map[string]*peer{}, failures: map[failureKey]uint64{}},
		failures:    failureTable{failures: map[failureKey]*failure{}}, processes: processTable{current: map[processKey]*process{}},
	}
}

func (s *Summary) trace(from *Source) *trace {
	key := from.key()
	if len(s.traces) >= maxTraces && s.traces[key] == nil {
		key = ""
	}
	t := s.traces[key]
	if t == nil {
		t = &trace{name: from.Pod()}
		if h := from.Header; h != nil {
			t.id = "jobId " + cmp.Or(h.JobID, "?") + ", Pod " + cmp.Or(h.PodUID, "?")
		}
		s.traces[key] = t
	}
	return t
}

// Line adds a line of a source.
func (s *Summary) Line(from *Source, line *tracefmt.Line) {
	t := s.trace(from)
	switch {
	case line.Header != nil:
		for _, name := range line.Header.Missing[:min(topRows, len(line.Header.Missing))] {
			if len(s.missing) < topRows {
				s.missing[table.Truncate(name, maxText)] = true
			}
		}
	case line.Account != nil:
		t.account(line.Account)
		s.lost.add(line.Account)
	case line.Record != nil:
		t.events++
		s.event(from, line.Record)
	}
}

// Exclude counts an event that a Filter excludes. It only shows that its process exists.
func (s *Summary) Exclude(from *Source, r *tracefmt.Record) {
	s.trace(from).events++
	s.excluded++
	if !isConnectionEvent(r) {
		s.processes.add(from, r, false)
	}
}

func (t *trace) account(a *tracefmt.Account) {
	t.accounts++
	t.written += a.Written
	if !a.Complete && len(t.ended) < topRows {
		t.ended = append(t.ended, table.Truncate(strings.Trim(a.Reason+": "+a.Message, ": "), maxText))
	}
}

// Damaged counts a line that cannot be read.
func (s *Summary) Damaged(from *Source, err error) {
	t := s.trace(from)
	t.damaged++
	if t.damage == "" {
		t.damage = table.Truncate((&SourceError{from.Name, err}).Error(), maxText)
	}
}

// End adds a source, which may have had no lines.
func (s *Summary) End(from *Source) { s.trace(from) }

func (s *Summary) event(from *Source, r *tracefmt.Record) {
	s.events++
	if s.first.IsZero() || r.Time.Before(s.first) {
		s.first = r.Time
	}
	if r.Time.After(s.last) {
		s.last = r.Time
	}
	if _, known := s.groups[r.Group]; known || len(s.groups) < maxGroups {
		s.groups[r.Group]++
	} else {
		s.otherGroups++
	}
	if isConnectionEvent(r) { // its process may be unknown or have exited before
		s.connections.add(r)
		return
	}
	s.processes.add(from, r, true)
	if r.Call == callExec || r.Call == callFork || r.Call == callExit {
		return // these are not calls
	}
	s.calls.add(r)
	s.files.add(r)
	s.slowCalls.add(from, r)
	s.failures.add(from, r)
}

// Problems says which parts of the traces are missing and why, one sentence each. The texts are not made printable.
func (s *Summary) Problems() []string {
	var all []string
	named := map[string]int{}
	for _, t := range s.traces {
		named[t.name]++
	}
	for _, key := range slices.Sorted(maps.Keys(s.traces)) {
		t := s.traces[key]
		name := t.name
		if named[name] > 1 && t.id != "" {
			name += " (" + t.id + ")"
		}
		say := func(format string, args ...any) { all = append(all, name+": "+fmt.Sprintf(format, args...)) }
		for _, reason := range t.ended {
			if reason == "" {
				reason = "no reason was given"
			}
			say("the trace is Incomplete: %s", reason)
		}
		if t.damaged > 0 {
			say("%s cannot be read; the first: %s", count(uint64(t.damaged), "line"), t.damage)
		}
		switch {
		case t.accounts == 0:
			say("the account at the end is missing: the tracer was killed or is still running, or its last file was not given")
		case t.written > t.events:
			say("%s of %d that were written are missing here", count(t.written-t.events, "event"), t.written)
		}
	}
	return all
}

// Lost counts the events that the tracers lost, by the place where they were lost.
func (s *Summary) Lost() map[string]uint64 { return maps.Clone(s.lost.places) }

// NotReported says which events of the traced groups a node's kernel does not report; empty if none. The text is not made printable.
func (s *Summary) NotReported() string {
	if len(s.missing) == 0 {
		return ""
	}
	return "The kernel of a node does not report these events: " + strings.Join(slices.Sorted(maps.Keys(s.missing)), ", ") + "."
}

// Events counts the events that no Filter excluded.
func (s *Summary) Events() uint64 { return s.events }

// Pods counts the traces.
func (s *Summary) Pods() int { return len(s.traces) }

// Text is the summary for people.
func (s *Summary) Text() string {
	var b strings.Builder
	s.head(&b)
	s.lost.text(&b)
	if s.events > 0 {
		s.files.text(&b)
		s.connections.text(&b)
		if len(s.slowCalls.top) > 0 || s.excluded == 0 { // excluded calls may have been measured
			s.slowCalls.text(&b, len(s.traces) > 1)
		}
		s.failures.text(&b)
		s.calls.text(&b)
		s.processes.text(&b, len(s.traces) > 1)
	}
	if problems := s.Problems(); len(problems) > 0 {
		b.WriteString("\nINCOMPLETE: some of what was traced is missing here.\n")
		for _, p := range problems {
			b.WriteString("  " + table.Printable(p) + "\n")
		}
	}
	return b.String()
}

// head writes how many events there are and how many were lost.
func (s *Summary) head(b *strings.Builder) {
	if s.excluded > 0 {
		b.WriteString(number(s.events) + " of ")
	}
	b.WriteString(count(s.events+s.excluded, "event"))
	if s.events > 0 {
		fmt.Fprintf(b, " in %s: %s", formatDuration(s.last.Sub(s.first)), parts(s.groups, s.otherGroups))
	}
	b.WriteString(".")
	switch lost := s.lost.places; {
	case len(lost) > 0:
		fmt.Fprintf(b, " %s lost: %s.", count(total(lost), "event"), parts(lost, 0))
	case len(s.Problems()) == 0:
		b.WriteString(" None was lost.")
	}
	if note := s.NotReported(); note != "" {
		b.WriteString(" " + table.Printable(note))
	}
	b.WriteString("\n")
}

// parts lists counts by name, the largest first.
func parts(counts map[string]uint64, other uint64) string {
	var all []string
	for _, k := range byCount(counts) {
		name := k
		if name == "" {
			name = "no group"
		}
		all = append(all, fmt.Sprintf("%s %d", table.Printable(name), counts[k]))
	}
	if other > 0 {
		all = append(all, fmt.Sprintf("other groups %d", other))
	}
	return strings.Join(all, ", ")
}
