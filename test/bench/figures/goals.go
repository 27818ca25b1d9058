package figures

import (
	"fmt"
	"slices"
)

// goal and the figure that was measured.
type goal struct {
	text   string
	figure string
	met    bool
}

const (
	// memoryGoal is the largest memory of a probe besides its rings, in bytes.
	memoryGoal = 64 << 20
	// missGoal is the largest cost of a packet that does not match the filter, in nanoseconds.
	missGoal = 60
	// rateGoal is the rate of large packets that must be captured without loss, in bits per second.
	rateGoal = 10e9
)

// goals returns the goals of BPF programs and then of packet sockets, as far as they were measured.
func goals(r *Results) []goal {
	bpf, sockets := EngineByName(EngineBPF), EngineByName(EngineAFPacket)
	return slices.Concat(
		lessGoals(r, bpf), missGoals(r, bpf), throughputGoals(r, bpf), rateGoals(r, bpf), lossGoals(r, bpf), memoryGoals(r, bpf),
		costGoals(r, sockets), lossGoals(r, sockets), memoryGoals(r, sockets),
	)
}

// lessGoals require that an engine costs several times less than the peer.
func lessGoals(r *Results, e *Engine) []goal {
	var out []goal
	for i := range Scenarios {
		s := &Scenarios[i]
		less := r.ratios(s, EngineMain, e.Name)
		if s.times == 0 || len(less) == 0 {
			continue
		}
		out = append(out, goal{
			text:   fmt.Sprintf("%s: CPU per packet at %s: at most 1/%.1f of tcpdump -B 65536", e.label, place(s), s.times),
			figure: fraction(less),
			met:    MedianOf(less) >= s.times,
		})
	}
	return out
}

// costGoals require that an engine costs no more than the peer.
func costGoals(r *Results, e *Engine) []goal {
	var out []goal
	for i := range Scenarios {
		s := &Scenarios[i]
		ratios := r.ratios(s, e.Name, EngineMain)
		if !s.goal || len(ratios) == 0 {
			continue
		}
		out = append(out, goal{
			text:   fmt.Sprintf("%s: CPU per packet at %s: not above tcpdump -B 65536", e.label, place(s)),
			figure: spread(ratios, "%.2f") + " of it",
			met:    MedianOf(ratios) <= 1,
		})
	}
	return out
}

func missGoals(r *Results, e *Engine) []goal {
	cost := totals(r.costs(ScenarioByName(ScenarioMiss), e.Name))
	if len(cost) == 0 {
		return nil
	}
	return []goal{{
		text:   fmt.Sprintf("%s: traffic that does not match: below %d ns a packet", e.label, missGoal),
		figure: spread(cost, "%.0f") + " ns",
		met:    MedianOf(cost) < missGoal,
	}}
}

// throughputGoals require that the target's own traffic slows down less than under the peer. They are measured with the
// stream, whose two ends share a CPU with the capture.
func throughputGoals(r *Results, e *Engine) []goal {
	rate := func(engine string) []float64 { return r.Each(ScenarioStream, engine, (*Sample).gigabits) }
	bare, ours, theirs := rate(EngineNone), rate(e.Name), rate(EngineMain)
	if len(ours) == 0 || len(ours) != len(theirs) || len(ours) != len(bare) {
		return nil
	}
	left, theirsLeft := make([]float64, len(ours)), make([]float64, len(ours))
	for i := range ours {
		left[i], theirsLeft[i] = 100*ours[i]/bare[i], 100*theirs[i]/bare[i]
	}
	return []goal{{
		text:   e.label + ": the target's own throughput falls less than under tcpdump -B 65536",
		figure: fmt.Sprintf("%s %% of the stream without a capture; under tcpdump %s %%", spread(left, "%.1f"), spread(theirsLeft, "%.1f")),
		met:    MedianOf(left) > MedianOf(theirsLeft),
	}}
}

// rateGoals require that no large packet is lost at rateGoal, or at the limit of the sender if that is lower.
func rateGoals(r *Results, e *Engine) []goal {
	s := ScenarioByName(scenarioLarge)
	full := r.Each(s.Name, e.Name, (*Sample).PPS)
	if len(full) == 0 {
		return nil
	}
	_, most := Bounds(r.Each(s.Name, e.Name, (*Sample).Loss))
	highest := Rate{PPS: MedianOf(full), Bound: most == 0}
	i := slices.IndexFunc(r.Rates, func(o Rate) bool { return o.Scenario == s.Name && o.Engine == e.Name })
	if i >= 0 {
		highest = r.Rates[i] // of a sender without pauses
	}
	lossless := highest.PPS * float64(s.Size) * 8
	out := goal{text: fmt.Sprintf("%s: no packet lost at %s at %.0f Gbit/s, or at the sender's limit", e.label, place(s), rateGoal/1e9)}
	switch {
	case highest.Bound:
		out.figure, out.met = fmt.Sprintf("none at the sender's %.1f Gbit/s", lossless/1e9), true
	case i < 0:
		out.figure = "lost at the sender's limit; no other rate was tried"
	default:
		out.figure, out.met = fmt.Sprintf("none up to %.1f Gbit/s", lossless/1e9), lossless >= rateGoal
	}
	return []goal{out}
}

// lossGoals require that Sonde's engines lose nothing where tcpdump loses nothing.
func lossGoals(r *Results, e *Engine) []goal {
	text := e.label + ": no loss at full rate where tcpdump loses"
	measured, places, lossy := false, 0, ""
	for i := range Scenarios {
		s := &Scenarios[i]
		ours := r.Each(s.Name, e.Name, (*Sample).Loss)
		measured = measured || len(ours) > 0
		worst := 0.0
		for _, peer := range []string{EngineMain, "tcpdump"} {
			_, most := Bounds(r.Each(s.Name, peer, (*Sample).Loss))
			worst = max(worst, most)
		}
		if worst == 0 {
			continue
		}
		places++
		if _, most := Bounds(ours); most > 0 {
			lossy += fmt.Sprintf("; up to %.2f %% at %s", 100*most, place(s))
		}
	}
	switch {
	case !measured:
		return nil
	case lossy != "":
		return []goal{{text: text, figure: lossy[2:]}}
	}
	return []goal{{text: text, figure: fmt.Sprintf("none, in %d places where tcpdump does", places), met: true}}
}

func memoryGoals(r *Results, e *Engine) []goal {
	var worst float64
	for i := range Scenarios {
		_, most := Bounds(r.Each(Scenarios[i].Name, e.Name, (*Sample).beside))
		worst = max(worst, most)
	}
	if worst == 0 {
		return nil
	}
	return []goal{{
		text:   fmt.Sprintf("%s: memory beside its rings and maps: below %d MiB", e.label, memoryGoal>>20),
		figure: fmt.Sprintf("%.1f MiB at most", worst/(1<<20)),
		met:    worst < memoryGoal,
	}}
}
