package figures

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// Results of a run.
type Results struct {
	Machine     Machine  `json:"machine"`
	Rounds      int      `json:"rounds"`
	PacketsEach int      `json:"packetsEach"`
	Samples     []Sample `json:"samples"`
	Rates       []Rate   `json:"rates"`
	// Turns of the slowest loop. The fields after it are also about traces.
	Turns          int         `json:"turns,omitempty"`
	Traces         []Traced    `json:"traces,omitempty"`
	TraceRates     []TraceRate `json:"traceRates,omitempty"`
	TraceLoad      string      `json:"traceLoad,omitempty"` // load of the machine when the traces began
	TraceLoadAfter string      `json:"traceLoadAfter,omitempty"`
	Intercept      Intercept   `json:"intercept,omitzero"`
	Live           Live        `json:"live,omitzero"`
}

// Write writes the results to a file as JSON.
func (r *Results) Write(path string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// Read reads the results of a run from a file.
func Read(path string) (*Results, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	var r Results
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read results of %s: %w", path, err)
	}
	if len(r.Samples)+len(r.Traces)+len(r.Intercept.Streams)+len(r.Live.Followed) == 0 {
		return nil, fmt.Errorf("read results: %s holds none", path)
	}
	return &r, nil
}

// PPS returns the packets per second.
func (s *Sample) PPS() float64 { return float64(s.Packets) / s.Wall.Seconds() }

// Loss returns the fraction of packets that was lost.
func (s *Sample) Loss() float64 {
	return float64(s.Dropped) / float64(max(s.Captured+s.Dropped, 1))
}

func (s *Sample) beside() float64 { return float64(s.Memory.Peak - s.Memory.Ring) }

// gigabits returns the gigabits per second.
func (s *Sample) gigabits() float64 { return float64(s.Bytes) * 8 / float64(s.Wall) }

// find returns the sample of a round.
func (r *Results) find(scenario, engine string, round int) *Sample {
	i := slices.IndexFunc(r.Samples, func(s Sample) bool {
		return s.Scenario == scenario && s.Engine == engine && s.Round == round
	})
	if i < 0 {
		return nil
	}
	return &r.Samples[i]
}

// rounds returns the number of rounds of a scenario.
func (r *Results) rounds(scenario string) (n int) {
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Scenario == scenario {
			n = max(n, s.Round+1)
		}
	}
	return n
}

// Each returns one figure for every round of an engine in a scenario: the median if a round measured it several times.
func (r *Results) Each(scenario, engine string, figure func(*Sample) float64) []float64 {
	var out []float64
	for round := range r.rounds(scenario) {
		if v := r.inRound(scenario, engine, round, figure); len(v) > 0 {
			out = append(out, MedianOf(v))
		}
	}
	return out
}

// inRound returns all measurements of a figure in one round.
func (r *Results) inRound(scenario, engine string, round int, figure func(*Sample) float64) []float64 {
	var out []float64
	for i := range r.Samples {
		if s := &r.Samples[i]; s.Scenario == scenario && s.Engine == engine && s.Round == round {
			out = append(out, figure(s))
		}
	}
	return out
}

// cost of an engine in one round, in nanoseconds per packet.
type cost struct {
	added   float64 // on the sender's side, compared to the same traffic without a capture
	process float64
}

func (c cost) total() float64 { return c.added + c.process }

// bare returns what the traffic of a sample costs on the sender's side without a capture. It is derived from the frames
// that were sent to the namespace that is not captured. For a stream it is derived from the streams without a capture
// in the same round, per byte, because each stream is segmented into a different number of packets. false says that it
// was not measured.
func (r *Results) bare(s *Scenario, one *Sample) (time.Duration, bool) {
	if !s.Stream() {
		return time.Duration(float64(one.Beside.CPU) / float64(max(one.Beside.Frames, 1)) * float64(one.Packets)), one.Beside.Frames > 0
	}
	each := r.inRound(s.Name, EngineNone, one.Round, func(o *Sample) float64 { return float64(o.Sender) / float64(o.Bytes) })
	return time.Duration(MedianOf(each) * float64(one.Bytes)), len(each) > 0
}

// costs returns the costs in each round, per captured packet. If the filter matches nothing they are per packet.
func (r *Results) costs(s *Scenario, engine string) []cost {
	var out []cost
	for round := range r.rounds(s.Name) {
		one := r.find(s.Name, engine, round)
		if one == nil {
			continue
		}
		bare, measured := r.bare(s, one)
		if !measured {
			continue
		}
		n := float64(max(one.Captured, 1))
		if s.Misses || engine == EngineNone {
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

// ratios returns the costs of one engine relative to another, for each round.
func (r *Results) ratios(s *Scenario, engine, to string) []float64 {
	ours, theirs := totals(r.costs(s, engine)), totals(r.costs(s, to))
	if s.Stream() { // packets differ in size, so compare costs per byte
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

// perByte returns the cost per captured byte of the stream, in nanoseconds.
func (r *Results) perByte(s *Scenario, engine string) []float64 {
	var out []float64
	for i, c := range r.costs(s, engine) {
		rounds := r.Each(s.Name, engine, func(o *Sample) float64 {
			return float64(o.Captured) / (float64(o.Bytes) * (1 - o.Loss()))
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

// MedianOf returns the median of v, or zero if it is empty.
func MedianOf(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = sorted(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// Bounds returns the smallest and the largest value of v.
func Bounds(v []float64) (least, most float64) {
	if len(v) == 0 {
		return 0, 0
	}
	return slices.Min(v), slices.Max(v)
}
