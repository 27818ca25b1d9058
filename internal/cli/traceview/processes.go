package traceview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// processKey is what a process has for itself while it lives: its node's number, in one Pod's trace.
type processKey struct {
	trace   string
	hostPID uint32
}

type process struct {
	pod, who, comm string
	named          bool   // who has the container
	command        string // of its last exec
	started        time.Time
	exit           string
	ended          bool
	events         uint64
	children       []*process
	parent         *process // nil: it is not known
	shown          bool     // it, or a child's child, has an event that is wanted
}

// count an event. One that is left out told of the process, and is none of those that are shown.
func (p *process) count(wanted bool) {
	if !wanted {
		return
	}
	p.events++
	for above := p; above != nil && !above.shown; above = above.parent {
		above.shown = true
	}
}

// processTable is the tree of processes.
type processTable struct {
	all     []*process // by their first event
	current map[processKey]*process
	other   uint64 // events of processes that there was no room for
}

func (t *processTable) add(from *Source, r *tracefmt.Record, wanted bool) {
	key := processKey{from.key(), r.HostPID}
	p := t.current[key]
	if r.Call == callFork {
		t.fork(from, r, key, wanted)
		return
	}
	if p == nil || p.ended && r.Call != callExit && r.HostPID == r.HostTID { // its number was given to another
		p = t.start(from, r, key)
	}
	if p == nil {
		t.noRoom(wanted)
		return
	}
	p.count(wanted)
	p.learn(r)
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

func (t *processTable) noRoom(wanted bool) {
	if wanted {
		t.other++
	}
}

// fork notes who made a process. The event is the child's.
func (t *processTable) fork(from *Source, r *tracefmt.Record, key processKey, wanted bool) {
	parent := uint32(0)
	if a := argument(r, argParent); a != nil {
		parent = uint32(a.Number)
	}
	if parent == r.HostPID { // a thread
		if p := t.current[key]; p != nil {
			p.count(wanted)
		}
		return
	}
	child := t.start(from, r, key)
	if child == nil {
		t.noRoom(wanted)
		return
	}
	child.started = r.Time
	if p := t.current[processKey{key.trace, parent}]; p != nil && p != child {
		p.children = append(p.children, child)
		child.parent = p
	}
	child.count(wanted)
}

func (t *processTable) start(from *Source, r *tracefmt.Record, key processKey) *process {
	if len(t.all) >= maxProcesses {
		delete(t.current, key)
		return nil
	}
	p := &process{pod: from.Pod()}
	p.learn(r)
	t.all = append(t.all, p)
	t.current[key] = p
	return p
}

func (p *process) learn(r *tracefmt.Record) {
	if p.who == "" || !p.named && r.Container != "" {
		p.who, p.named = table.Truncate(who(r), maxWord), r.Container != ""
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
	more(b, len(shown)-(len(rows)-1), "process", "processes", t.other, "events of further processes")
}

// deepest is how far a branch is drawn to the right.
const deepest = 20

func branches(rows [][]string, all []*process, depth int, pods bool) [][]string {
	for _, p := range all {
		if len(rows) > processRows {
			return rows
		}
		if !p.shown {
			continue
		}
		name, started, exit := p.who, "before", p.exit
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
		rows = append(rows, []string{name, started, exit, number(p.events), strings.Repeat("  ", min(depth, deepest)) + command})
		rows = branches(rows, p.children, depth+1, pods)
	}
	return rows
}
