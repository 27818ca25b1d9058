package traceview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Figures are the numbers of a Summary, for programs that show them in another form than Text. Texts are not made printable.
type Figures struct {
	Events      uint64
	First, Last time.Time
	// Groups, Lost and LostCalls are sorted by count, the largest first. Lost is by the place where events were lost.
	Groups, Lost, LostCalls []NamedCount
	// Calls and Files are sorted by time, Connections by bytes, and Failures by count. The Other counts are events that were only
	// counted, because the Summary's memory is bounded.
	Calls                                                          []Call
	Files                                                          []File
	Slowest                                                        []SlowCall
	Failures                                                       []Failure
	Connections                                                    []Peer
	OtherCalls, OtherFiles, OtherFailures, OtherPeers, OtherEvents uint64
	// Processes in the order of a tree.
	Processes []Process
	Latencies []LatencyBucket
	Pods      int
}

// NamedCount is a count with its name.
type NamedCount struct {
	Name  string
	Count uint64
}

// Call sums up the calls of one name.
type Call struct {
	Name           string
	Count, Failed  uint64
	Measured       uint64
	Total, Longest time.Duration
}

// Mean duration of the calls that were measured.
func (c *Call) Mean() time.Duration {
	if c.Measured == 0 {
		return 0
	}
	return c.Total / time.Duration(c.Measured)
}

// File sums up the calls on one path.
type File struct {
	Path          string
	Calls         uint64
	Time          time.Duration
	Read, Written uint64 // bytes
}

// SlowCall is one call.
type SlowCall struct {
	Took                                           time.Duration
	Ended, Pod, Process, Comm, Call, Result, About string
}

// Failure sums up calls that failed with one error.
type Failure struct {
	Call, Errno, MostOften string
	Count                  uint64
}

// Peer sums up the connections with one address.
type Peer struct {
	Name                                                     string
	Count, Failed, Open, Sent, Received, Retransmits, Resets uint64
	// RTT is the longest round-trip time; zero if it is unknown.
	RTT time.Duration
}

// Process of a trace. Depth is its distance from the root of its tree.
type Process struct {
	Depth     int
	Pod, Name string
	Command   string
	Started   time.Time // zero if it is older than the trace
	Exit      string
	Ended     bool
	Events    uint64
}

// LatencyBucket counts the calls that took From or longer, and less than Below.
type LatencyBucket struct {
	From, Below time.Duration
	Count       uint64
}

// Figures returns the numbers so far.
func (s *Summary) Figures() Figures {
	f := Figures{
		Events: s.events, First: s.first, Last: s.last, Pods: len(s.traces),
		Groups: named(s.groups), Lost: named(s.lost.places), LostCalls: named(s.lost.calls),
		Calls: s.calls.figures(), Files: s.files.figures(), Slowest: s.slowCalls.figures(), Failures: s.failures.figures(),
		Connections: s.connections.figures(), Processes: s.processes.figures(), Latencies: s.slowCalls.buckets(),
		OtherCalls: s.calls.other, OtherFiles: s.files.other, OtherFailures: s.failures.other,
		OtherPeers: s.connections.other, OtherEvents: s.processes.other,
	}
	return f
}

func named(counts map[string]uint64) []NamedCount {
	all := make([]NamedCount, 0, len(counts))
	for _, name := range byCount(counts) {
		all = append(all, NamedCount{name, counts[name]})
	}
	return all
}

func (t *callTable) figures() []Call {
	all := make([]Call, 0, len(t.calls))
	for _, c := range t.calls {
		all = append(all, Call{c.name, c.count, c.failed, c.measured, c.total, c.longest})
	}
	slices.SortFunc(all, func(a, b Call) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func (t *fileTable) figures() []File {
	all := make([]File, 0, len(t.files))
	for _, f := range t.files {
		all = append(all, File{f.path, f.calls, f.time, f.read, f.written})
	}
	slices.SortFunc(all, func(a, b File) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.Read+b.Written, a.Read+a.Written), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Path, b.Path))
	})
	return all
}

func (s *slowCalls) figures() []SlowCall {
	all := make([]SlowCall, 0, len(s.top))
	for _, c := range s.top {
		all = append(all, SlowCall{
			Took: c.took, Ended: c.row[1], Pod: c.pod, Process: c.row[2], Comm: c.row[3], Call: c.row[4], Result: c.row[5], About: c.row[6],
		})
	}
	return all
}

// buckets returns a bucket for each power of two from the shortest to the longest call.
func (s *slowCalls) buckets() []LatencyBucket {
	var all []LatencyBucket
	for i, n := range s.byBits {
		from, below := time.Duration(0), time.Duration(1)
		if i > 0 {
			from, below = 1<<min(i-1, 62), 1<<min(i, 62)
		}
		if n > 0 || len(all) > 0 {
			all = append(all, LatencyBucket{from, below, n})
		}
	}
	for len(all) > 0 && all[len(all)-1].Count == 0 {
		all = all[:len(all)-1]
	}
	return all
}

func (t *failureTable) figures() []Failure {
	all := make([]Failure, 0, len(t.failures))
	for _, f := range t.failures {
		all = append(all, Failure{f.call, f.errno, f.mostFrequent(), f.count})
	}
	slices.SortFunc(all, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Call, b.Call), cmp.Compare(a.Errno, b.Errno))
	})
	return all
}

func (t *connectionTable) figures() []Peer {
	all := make([]Peer, 0, len(t.peers))
	for p := range maps.Values(t.peers) {
		all = append(all, Peer{p.name, p.count, p.failed, p.open, p.sent, p.received, p.retransmits, p.resets, p.rtt})
	}
	slices.SortFunc(all, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(b.Sent+b.Received, a.Sent+a.Received), cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name))
	})
	return all
}

// figures walks the trees without recursion: a chain of processes may be as long as the table.
func (t *processTable) figures() []Process {
	type visit struct {
		process *process
		depth   int
	}
	var all []Process
	var stack []visit
	for _, p := range slices.Backward(t.all) {
		if p.parent == nil {
			stack = append(stack, visit{p, 0})
		}
	}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !v.process.shown {
			continue
		}
		all = append(all, v.process.figures(v.depth))
		for _, child := range slices.Backward(v.process.children) {
			stack = append(stack, visit{child, v.depth + 1})
		}
	}
	return all
}

func (p *process) figures(depth int) Process {
	command := p.command
	if command == "" {
		command = fmt.Sprintf("[%s]", p.comm)
	}
	return Process{
		Depth: depth, Pod: p.pod, Name: p.processName, Command: command, Started: p.started, Exit: p.exit, Ended: p.ended, Events: p.events,
	}
}
