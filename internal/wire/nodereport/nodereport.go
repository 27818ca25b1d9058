// Package nodereport has the report of a node's kernel features, and which parts of Sonde work there. "agent doctor" makes
// it, and "kubectl sonde doctor" shows it.
package nodereport

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Version of the report. It rises when an older reader would misread the report.
const Version = 1

// Bounds of a report, which comes from a node and is not trusted.
const (
	maxBytes = 64 << 10
	maxItems = 64
)

// Report of one node.
type Report struct {
	Version int    `json:"v"`
	Node    string `json:"node,omitempty"`
	Kernel  string `json:"kernel"`
	Arch    string `json:"arch"`
	CPUs    int    `json:"cpus"`
	// Memory of the node, and how much of it is available, in bytes.
	Memory    int64 `json:"memoryBytes"`
	Available int64 `json:"availableBytes"`
	// Cgroup is v1, v2, or v1+v2 where a host has hierarchies of both.
	Cgroup   string    `json:"cgroup"`
	Checks   []Check   `json:"checks"`
	Settings []Setting `json:"settings"`
	// Conclusions from the checks, for each part of Sonde.
	Conclusions []Conclusion `json:"conclusions"`
}

// Check is the result of one attempt.
type Check struct {
	Name  Name `json:"name"`
	Works bool `json:"works"`
	// Why it does not work.
	Why string `json:"why,omitempty"`
}

// Setting of the kernel that an admin can change, and its meaning for Sonde, which may be empty.
type Setting struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Meaning string `json:"meaning,omitempty"`
}

// Conclusion about one part of Sonde.
type Conclusion struct {
	Part  string `json:"part"`
	Works bool   `json:"works"`
	// Because names the missing checks, or has a note.
	Because string `json:"because,omitempty"`
}

// Name of a check.
type Name string

// Checks.
const (
	Rights      Name = "capabilities"
	AFPacket    Name = "AF_PACKET"
	BTF         Name = "BTF"
	TypedTP     Name = "tp_btf"
	RawTP       Name = "raw tracepoint"
	TaskStorage Name = "task storage"
	SocketStore Name = "socket storage"
	RingBuffer  Name = "ring buffer"
	Iterator    Name = "iterator"
	Cgroups     Name = "cgroups"
	Tracer      Name = "tracer"
	SignalByFD  Name = "pidfd"
	TCX         Name = "tcx"
	Clsact      Name = "clsact"
	FEntry      Name = "fentry"
	Kprobe      Name = "kprobe"
	Uprobe      Name = "uprobe"
)

// Texts for a check without a result, and for one that no part needs.
const (
	notTried = "it was not tried"
	unused   = "nothing of this version"
)

// descriptions of the checks.
var descriptions = map[Name]string{
	Rights:      "the rights that the probe needs",
	AFPacket:    "packet sockets with a TPACKET_V3 ring",
	BTF:         "types of the kernel (/sys/kernel/btf/vmlinux)",
	TypedTP:     "BPF programs at typed tracepoints",
	RawTP:       "BPF programs at raw tracepoints",
	TaskStorage: "BPF storage for each thread",
	SocketStore: "BPF storage for each socket",
	RingBuffer:  "BPF ring buffers",
	Iterator:    "BPF iterators of processes",
	Cgroups:     "Pods' cgroups as BPF sees them",
	Tracer:      "the tracer itself, loaded and attached",
	SignalByFD:  "signals by pidfd",
	TCX:         "BPF programs at tcx",
	Clsact:      "BPF programs at clsact",
	FEntry:      "BPF programs at a function's entry (fentry)",
	Kprobe:      "kprobes",
	Uprobe:      "uprobes",
}

// extras are optional: a part works without them, but can do less.
var extras = map[Name]string{FEntry: "traces: how long page faults take", SocketStore: "traces: the group network"}

// parts of Sonde and the checks that each needs.
var parts = []part{
	{name: "packet captures", needs: []Name{Rights}, alternatives: packetEngines},
	{name: "traces", needs: tracing},
	{name: "gates", needs: slices.Concat(tracing, []Name{SignalByFD})},
	{name: "packets by tcx", needs: []Name{Rights, TCX}, works: "engine bpf"},
	{name: "packets by clsact", needs: []Name{Rights, Clsact}, works: "engine bpf, where tcx does not work"},
	{name: "packets by AF_PACKET", needs: []Name{Rights, AFPacket}, works: "engine afpacket"},
}

// part of Sonde.
type part struct {
	name  string
	needs []Name
	// alternatives: the first check that works is used.
	alternatives []Name
	// works is a note for a part that works.
	works string
}

// packetEngines are the checks of engine auto, in its order.
var packetEngines = []Name{TCX, Clsact, AFPacket}

var tracing = []Name{Rights, BTF, TypedTP, TaskStorage, RingBuffer, Iterator, Cgroups, Tracer}

// Conclude sets the conclusions from the checks.
func (r *Report) Conclude() {
	r.Conclusions = nil
	for _, p := range parts {
		c := Conclusion{Part: p.name, Works: true, Because: p.works}
		missing := r.failing(p.needs)
		if failed := r.failing(p.alternatives); len(p.alternatives) > 0 && len(failed) == len(p.alternatives) {
			missing = append(missing, failed...)
		} else if len(p.alternatives) > 0 {
			c.Because = "engine auto takes " + string(p.alternatives[r.first(p.alternatives)])
		}
		if len(missing) > 0 {
			c.Works, c.Because = false, strings.Join(missing, "; ")
		}
		r.Conclusions = append(r.Conclusions, c)
	}
}

// failing returns the names of checks that do not work, each with the reason.
func (r *Report) failing(names []Name) []string {
	var missing []string
	for _, n := range names {
		if works, why := r.check(n); !works {
			missing = append(missing, string(n)+": "+why)
		}
	}
	return missing
}

// first returns the index of the first check that works.
func (r *Report) first(names []Name) int {
	return slices.IndexFunc(names, func(n Name) bool {
		works, _ := r.check(n)
		return works
	})
}

func (r *Report) check(n Name) (works bool, why string) {
	i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == n })
	switch {
	case i < 0:
		return false, notTried
	case r.Checks[i].Works:
		return true, ""
	case r.Checks[i].Why == "":
		return false, "it does not work"
	}
	return false, r.Checks[i].Why
}

// NeededBy returns the parts that need a check.
func NeededBy(n Name) []string {
	var all []string
	for _, p := range parts {
		if slices.Contains(p.needs, n) || slices.Contains(p.alternatives, n) {
			all = append(all, p.name)
		}
	}
	return all
}

var errNoReport = errors.New("the agent gave no report")

// Parse finds the report among the lines of an agent's log.
func Parse(log []byte) (*Report, error) {
	if len(log) > maxBytes {
		log = log[len(log)-maxBytes:]
	}
	for line := range strings.Lines(string(log)) {
		var r Report
		if !strings.HasPrefix(line, `{"v":`) || json.Unmarshal([]byte(line), &r) != nil {
			continue
		}
		if r.Version < 1 || r.Version > Version {
			return nil, fmt.Errorf("the agent's report is of version %d, and this plugin reads %d: update the older of the two", r.Version, Version)
		}
		if len(r.Checks) > maxItems || len(r.Settings) > maxItems {
			return nil, fmt.Errorf("the report has %d checks and %d settings, more than an agent's", len(r.Checks), len(r.Settings))
		}
		r.Conclude()
		return &r, nil
	}
	return nil, errNoReport
}
