package traceview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// processKey identifies a running process: its PID on the node, in the trace of one Pod.
type processKey struct {
	trace   string
	hostPID uint32
}

type process struct {
	pod, processName, comm string
	named                  bool   // processName includes the container
	command                string // of its last exec
	started                time.Time
	exit                   string
	ended                  bool
	events                 uint64
	children               []*process
	parent                 *process // nil if unknown
	shown                  bool     // the process or a descendant has an included event
}

// count counts an included event. An excluded one only shows that the process exists.
func (p *process) count(included bool) {
	if !included {
		return
	}
	p.events++
	for ancestor := p; ancestor != nil && !ancestor.shown; ancestor = ancestor.parent {
		ancestor.shown = true
	}
}

// processTable is the tree of processes.
type processTable struct {
	all     []*process // in the order of their first events
	current map[processKey]*process
	other   uint64 // events of processes beyond maxProcesses
}

func (t *processTable) add(from *Source, r *tracefmt.Record, included bool) {
	key := processKey{from.key(), r.HostPID}
	p := t.current[key]
	if r.Call == callFork {
		t.fork(from, r, key, included)
		return
	}
	if p == nil || p.ended && r.Call != callExit && r.HostPID == r.HostTID { // the PID was reused
		p = t.start(from, r, key)
	}
	if p == nil {
		t.countOmitted(included)
		return
	}
	p.count(included)
	p.observe(r)
	switch r.Call {
	case callExec:
		if a := argument(r, argArgv); a != nil {
			p.command = table.Truncate(commandLine(a.Text), maxText)
		}
		if p.command == "" {
			p.command = table.Truncate(quoted(r.Path), maxText)
		}
	case callExit:
		if r.HostPID == r.HostTID {
			p.exit, p.ended = exitOf(r), true
		}
	}
}

func (t *processTable) countOmitted(included bool) {
	if included {
		t.other++
	}
}

// fork adds a process and its parent. The event is of the child.
func (t *processTable) fork(from *Source, r *tracefmt.Record, key processKey, included bool) {
	parent := uint32(0)
	if a := argument(r, argParent); a != nil {
		parent = uint32(a.Number)
	}
	if parent == r.HostPID { // a thread
		if p := t.current[key]; p != nil {
			p.count(included)
		}
		return
	}
	child := t.start(from, r, key)
	if child == nil {
		t.countOmitted(included)
		return
	}
	child.started = r.Time
	if p := t.current[processKey{key.trace, parent}]; p != nil && p != child {
		p.children = append(p.children, child)
		child.parent = p
	}
	child.count(included)
}

func (t *processTable) start(from *Source, r *tracefmt.Record, key processKey) *process {
	if len(t.all) >= maxProcesses {
		delete(t.current, key)
		return nil
	}
	p := &process{pod: from.Pod()}
	p.observe(r)
	t.all = append(t.all, p)
	t.current[key] = p
	return p
}

func (p *process) observe(r *tracefmt.Record) {
	if p.processName == "" || !p.named && r.Container != "" {
		p.processName, p.named = table.Truncate(processName(r), maxWord), r.Container != ""
	}
	if p.comm == "" || r.HostPID == r.HostTID && p.comm != string(r.Comm) {
		p.comm = table.Truncate(string(r.Comm), maxWord)
	}
}

func (t *processTable) text(b *strings.Builder, pods bool) {
	shown := slices.DeleteFunc(slices.Clone(t.all), func(p *process) bool { return !p.shown })
	roots := slices.DeleteFunc(slices.Clone(shown), func(p *process) bool { return p.parent != nil })
	rows := [][]string{{"PROCESS", "STARTED", "ENDED WITH", "EVENTS", "COMMAND"}}
	rows = branches(rows, roots, 0, pods)
	if len(shown)+int(min(t.other, 1)) == 0 {
		return
	}
	b.WriteString("\nProcesses:\n")
	b.WriteString(table.Text("lllrl", rows))
	writeOmitted(b, len(shown)-(len(rows)-1), "process", "processes", t.other, "events of other processes")
}

// maxIndent is the largest indentation, in levels.
const maxIndent = 20

func branches(rows [][]string, all []*process, depth int, pods bool) [][]string {
	for _, p := range all {
		if len(rows) > processRows {
			return rows
		}
		if !p.shown {
			continue
		}
		name, started, exit := p.processName, "before", p.exit
		if pods {
			name = quoted(p.pod) + "/" + name
		}
		if !p.started.IsZero() {
			started = clockTime(p.started)
		}
		if !p.ended {
			exit = "still there"
		}
		command := p.command
		if command == "" {
			command = fmt.Sprintf("[%s]", quoted(p.comm))
		}
		rows = append(rows, []string{name, started, exit, number(p.events), strings.Repeat("  ", min(depth, maxIndent)) + command})
		rows = branches(rows, p.children, depth+1, pods)
	}
	return rows
}
