package main

import (
	"fmt"
	"slices"
	"strings"
)

// scenario is one thing that every engine is measured at.
type scenario struct {
	name  string
	label string
	size  int // bytes of a frame; 0 is the TCP stream
	snap  int
	// filter of the capture; empty is none.
	filter string
	disk   bool // else the file is on a tmpfs
	// all engines take part; else only Sonde and the peer that goals speak of.
	all bool
	// goal says that packet sockets have a goal for the CPU time per packet here: not above the peer's.
	goal bool
	// times is how many times less than the peer BPF programs are to take; 0 is no goal.
	times float64
	// misses says that the filter matches nothing of the traffic.
	misses bool
	// turns is how often it is measured in each round; 0 is once.
	turns int
}

var (
	floodFilter = fmt.Sprintf("udp port %d", floodPort)
	otherFilter = fmt.Sprintf("udp port %d", otherPort)
)

// Names that other parts of bench ask for.
const (
	scenarioMiss   = "64-miss"
	scenarioLarge  = "1500-disk"
	scenarioStream = "stream"
)

var scenarios = []scenario{
	{name: "64-disk", label: "64 B", size: 64, filter: floodFilter, disk: true, all: true, times: 3.5},
	{name: "512-disk", label: "512 B", size: 512, filter: floodFilter, disk: true, all: true, goal: true, times: 2.2},
	{name: scenarioLarge, label: "1500 B", size: 1500, filter: floodFilter, disk: true, all: true, goal: true, times: 2.5},
	{name: "1500-snap96-disk", label: "1500 B, snap 96", size: 1500, snap: 96, filter: floodFilter, disk: true, all: true, goal: true, times: 3.5},
	{name: "512-disk-nofilter", label: "512 B, no filter", size: 512, disk: true, goal: true},
	{name: "512-tmpfs", label: "512 B, tmpfs", size: 512, filter: floodFilter, goal: true},
	{name: "1500-tmpfs", label: "1500 B, tmpfs", size: 1500, filter: floodFilter, goal: true},
	{name: scenarioMiss, label: "64 B, no match", size: 64, filter: otherFilter, misses: true, all: true},
	// What a stream costs depends on how it happens to be cut into packets, and differs more from one to the next than all else.
	{name: scenarioStream, label: "TCP stream, tmpfs", all: true, turns: 3},
}

func (s *scenario) stream() bool { return s.size == 0 }

func scenarioByName(name string) *scenario {
	for i := range scenarios {
		if scenarios[i].name == name {
			return &scenarios[i]
		}
	}
	return nil
}

// takesPart tells whether an engine is measured in the scenario.
func (s *scenario) takesPart(e *engine) bool {
	if e.whole && (s.stream() || s.snap > 0) {
		return false
	}
	return s.all || slices.Contains(own, e.name) || e.name == engineMain
}

// order is in which order engines take part in a round.
func (s *scenario) order(round int) []*engine {
	var out []*engine
	for i := range engines {
		if e := &engines[i]; e.name != engineNone && s.takesPart(e) {
			out = append(out, e)
		}
	}
	if round%2 == 1 {
		slices.Reverse(out)
	}
	none := engineByName(engineNone)
	if !s.stream() {
		return append(out, none) // nothing is compared to it: it shows what the measurement is worth
	}
	for _, at := range []int{len(out), len(out) / 2, 0} {
		out = slices.Insert(out, at, none)
	}
	return out
}

// wants tells whether a scenario is to be measured.
func (o *options) wants(s *scenario) bool { return strings.Contains(s.name, o.only) }
