package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// results are everything that a run measured.
type results struct {
	Machine     machine  `json:"machine"`
	Rounds      int      `json:"rounds"`
	PacketsEach int      `json:"packetsEach"`
	Samples     []sample `json:"samples"`
	Rates       []rate   `json:"rates"`
	// Turns of the slowest loop, and the rest of what was measured of traces.
	Turns          int         `json:"turns,omitempty"`
	Traces         []traced    `json:"traces,omitempty"`
	TraceRates     []traceRate `json:"traceRates,omitempty"`
	TraceLoad      string      `json:"traceLoad,omitempty"` // of the machine, when traces began
	TraceLoadAfter string      `json:"traceLoadAfter,omitempty"`
}

func (r *results) write(path string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func readResults(path string) (*results, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	var r results
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read results of %s: %w", path, err)
	}
	if len(r.Samples)+len(r.Traces) == 0 {
		return nil, fmt.Errorf("read results: %s holds none", path)
	}
	return &r, nil
}

func (s *sample) pps() float64 { return float64(s.Packets) / s.Wall.Seconds() }

// loss is the share of packets that was lost.
func (s *sample) loss() float64 {
	return float64(s.Dropped) / float64(max(s.Captured+s.Dropped, 1))
}

func (s *sample) beside() float64 { return float64(s.Memory.Peak - s.Memory.Ring) }

// gigabits of the traffic in a second.
func (s *sample) gigabits() float64 { return float64(s.Bytes) * 8 / float64(s.Wall) }

// find returns the sample of a round.
func (r *results) find(scenario, engine string, round int) *sample {
	i := slices.IndexFunc(r.Samples, func(s sample) bool {
		return s.Scenario == scenario && s.Engine == engine && s.Round == round
	})
	if i < 0 {
		return nil
	}
	return &r.Samples[i]
}

// rounds is how many there are of a scenario.
func (r *results) rounds(scenario string) (n int) {
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Scenario == scenario {
			n = max(n, s.Round+1)
		}
	}
	return n
}

// each is one figure of every round of an engine in a scenario; the median, where it was measured more than once in a round.
func (r *results) each(scenario, engine string, figure func(*sample) float64) []float64 {
	var out []float64
	for round := range r.rounds(scenario) {
		if v := r.inRound(scenario, engine, round, figure); len(v) > 0 {
			out = append(out, medianOf(v))
		}
	}
	return out
}

// inRound is a figure each time that it was measured in one round.
func (r *results) inRound(scenario, engine string, round int, figure func(*sample) float64) []float64 {
	var out []float64
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Scenario == scenario && s.Engine == engine && s.Round == round {
			out = append(out, figure(s))
		}
	}
	return out
}

// cost is what an engine takes in one round, in nanoseconds per packet.
type cost struct {
	added   float64 // on the sender's side, compared to the same traffic without a capture
	process float64
}

func (c cost) total() float64 { return c.added + c.process }

// bare is what the traffic of a run would have taken on the sender's side without a capture: as much as the frames that were sent beside it;
// for a stream, which knows none, as much as streams in the same round, by the byte, as they are not cut into as many packets each time.
// false says that it was not measured.
func (r *results) bare(s *scenario, one *sample) (time.Duration, bool) {
	if !s.stream() {
		return time.Duration(float64(one.Beside.CPU) / float64(max(one.Beside.Frames, 1)) * float64(one.Packets)), one.Beside.Frames > 0
	}
	each := r.inRound(s.name, engineNone, one.Round, func(o *sample) float64 { return float64(o.Sender) / float64(o.Bytes) })
	return time.Duration(medianOf(each) * float64(one.Bytes)), len(each) > 0
}

// costs returns the costs of every round: per captured packet, or where nothing is to be captured, per packet.
func (r *results) costs(s *scenario, engine string) []cost {
	var out []cost
	for round := range r.rounds(s.name) {
		one := r.find(s.name, engine, round)
		if one == nil {
			continue
		}
		bare, measured := r.bare(s, one)
		if !measured {
			continue
		}
		n := float64(max(one.Captured, 1))
		if s.misses || engine == engineNone {
			n = float64(one.Packets)
		}
		out = append(out, cost{added: float64(one.Sender-bare) / n, process: float64(one.Process) / n})
	}
	return out
}

func totals(c []cost) []float64 {
	out := make([]float64, len(c))
	for i := range c {
		out[i] = c[i].total()
	}
	return out
}

// ratios are the costs of one engine relative to another's, round by round.
func (r *results) ratios(s *scenario, engine, to string) []float64 {
	ours, theirs := totals(r.costs(s, engine)), totals(r.costs(s, to))
	if s.stream() { // packets differ in size: by byte
		ours, theirs = r.perByte(s, engine), r.perByte(s, to)
	}
	out := make([]float64, 0, len(ours))
	for i := range min(len(ours), len(theirs)) {
		if theirs[i] > 0 {
			out = append(out, ours[i]/theirs[i])
		}
	}
	return out
}

// perByte is the cost per captured byte of the stream, in nanoseconds.
func (r *results) perByte(s *scenario, engine string) []float64 {
	var out []float64
	for i, c := range r.costs(s, engine) {
		rounds := r.each(s.name, engine, func(o *sample) float64 {
			return float64(o.Captured) / (float64(o.Bytes) * (1 - o.loss()))
		})
		out = append(out, c.total()*rounds[i])
	}
	return out
}

func sorted(v []float64) []float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v
}

func medianOf(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = sorted(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func bounds(v []float64) (least, most float64) {
	if len(v) == 0 {
		return 0, 0
	}
	return slices.Min(v), slices.Max(v)
}
