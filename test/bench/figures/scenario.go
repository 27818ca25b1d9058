package figures

import (
	"fmt"
	"slices"
)

// Scenario is a kind of traffic and capture with which engines are measured.
type Scenario struct {
	Name  string
	label string
	Size  int // bytes of a frame; 0 is the TCP stream
	Snap  int
	// Filter of the capture; empty means none.
	Filter string
	Disk   bool // the file is on the disk and not on a tmpfs
	// all says that all engines take part, and not only Sonde and the peer in the goals.
	all bool
	// goal says that packet sockets may cost no more CPU time per packet than the peer.
	goal bool
	// times is how many times less than the peer BPF programs must cost; 0 means no goal.
	times float64
	// Misses says that the filter does not match the traffic.
	Misses bool
	// Turns is how often each round measures it; 0 means once.
	Turns int
	// Flows is how many flows the frames belong to, in turn. They then reach a socket of the target. 0 means that they reach none.
	Flows int
	// Processes says that the capture names the process of each packet.
	Processes bool
}

// UDP ports of the frames, and of a filter that matches none of them.
const (
	FloodPort = 9
	otherPort = 10
)

var (
	floodFilter = fmt.Sprintf("udp port %d", FloodPort)
	otherFilter = fmt.Sprintf("udp port %d", otherPort)
)

// Names of scenarios.
const (
	ScenarioMiss   = "64-miss"
	scenarioLarge  = "1500-disk"
	ScenarioStream = "stream"
)

// Scenarios in the order of a round.
var Scenarios = []Scenario{
	{Name: "64-disk", label: "64 B", Size: 64, Filter: floodFilter, Disk: true, all: true, times: 3.5},
	{Name: "512-disk", label: "512 B", Size: 512, Filter: floodFilter, Disk: true, all: true, goal: true, times: 2.2},
	{Name: scenarioLarge, label: "1500 B", Size: 1500, Filter: floodFilter, Disk: true, all: true, goal: true, times: 2.5},
	{Name: "1500-snap96-disk", label: "1500 B, snap 96", Size: 1500, Snap: 96, Filter: floodFilter, Disk: true, all: true, goal: true, times: 3.5},
	{Name: "512-disk-nofilter", label: "512 B, no filter", Size: 512, Disk: true, goal: true},
	{Name: "512-tmpfs", label: "512 B, tmpfs", Size: 512, Filter: floodFilter, goal: true},
	{Name: "1500-tmpfs", label: "1500 B, tmpfs", Size: 1500, Filter: floodFilter, goal: true},
	{Name: ScenarioMiss, label: "64 B, no match", Size: 64, Filter: otherFilter, Misses: true, all: true},
	// The cost of a stream depends on its segmentation, so it varies more than the others.
	{Name: ScenarioStream, label: "TCP stream, tmpfs", all: true, Turns: 3},
}

// Stream reports whether the traffic is a TCP stream.
func (s *Scenario) Stream() bool { return s.Size == 0 }

// ScenarioByName returns the scenario, or nil if there is none of that name.
func ScenarioByName(name string) *Scenario {
	for i := range Scenarios {
		if Scenarios[i].Name == name {
			return &Scenarios[i]
		}
	}
	return nil
}

// takesPart reports whether the scenario measures an engine.
func (s *Scenario) takesPart(e *Engine) bool {
	if e.whole && (s.Stream() || s.Snap > 0) {
		return false
	}
	return s.all || slices.Contains(own, e.Name) || e.Name == EngineMain
}

// Order returns the engines in the order of a round.
func (s *Scenario) Order(round int) []*Engine {
	var out []*Engine
	for i := range Engines {
		if e := &Engines[i]; e.Name != EngineNone && s.takesPart(e) {
			out = append(out, e)
		}
	}
	if round%2 == 1 {
		slices.Reverse(out)
	}
	none := EngineByName(EngineNone)
	if !s.Stream() {
		return append(out, none) // it is compared to nothing, but shows the precision of the measurement
	}
	for _, at := range []int{len(out), len(out) / 2, 0} {
		out = slices.Insert(out, at, none)
	}
	return out
}
