package main

import (
	"fmt"
	"slices"
)

// goal is what the capture is to reach, and what it reached.
type goal struct {
	text   string
	figure string
	met    bool
}

const (
	// memoryGoal is the most that a probe may have beside its rings, in bytes.
	memoryGoal = 64 << 20
	// missGoal is below what a packet may cost that does not match, in nanoseconds.
	missGoal = 60
	// rateGoal is what is to be captured of large packets without a loss, in bits per second.
	rateGoal = 10e9
)

// goals are those of BPF programs, then those of packet sockets, each as far as it was measured.
func goals(r *results) []goal {
	bpf, sockets := engineByName(engineBPF), engineByName(engineAFPacket)
	return slices.Concat(
		lessGoals(r, bpf), missGoals(r, bpf), throughputGoals(r, bpf), rateGoals(r, bpf), lossGoals(r, bpf), memoryGoals(r, bpf),
		costGoals(r, sockets), lossGoals(r, sockets), memoryGoals(r, sockets),
	)
}

// lessGoals are that an engine takes so many times less than the peer.
func lessGoals(r *results, e *engine) []goal {
	var out []goal
	for i := range scenarios {
		s := &scenarios[i]
		less := r.ratios(s, engineMain, e.name)
		if s.times == 0 || len(less) == 0 {
			continue
		}
		out = append(out, goal{
			text:   fmt.Sprintf("%s: CPU per packet at %s: at most 1/%.1f of tcpdump -B 65536", e.label, place(s), s.times),
			figure: fraction(less),
			met:    medianOf(less) >= s.times,
		})
	}
	return out
}

// costGoals are that an engine takes no more than the peer.
func costGoals(r *results, e *engine) []goal {
	var out []goal
	for i := range scenarios {
		s := &scenarios[i]
		ratios := r.ratios(s, e.name, engineMain)
		if !s.goal || len(ratios) == 0 {
			continue
		}
		out = append(out, goal{
			text:   fmt.Sprintf("%s: CPU per packet at %s: not above tcpdump -B 65536", e.label, place(s)),
			figure: spread(ratios, "%.2f") + " of it",
			met:    medianOf(ratios) <= 1,
		})
	}
	return out
}

func missGoals(r *results, e *engine) []goal {
	cost := totals(r.costs(scenarioByName(scenarioMiss), e.name))
	if len(cost) == 0 {
		return nil
	}
	return []goal{{
		text:   fmt.Sprintf("%s: traffic that does not match: below %d ns a packet", e.label, missGoal),
		figure: spread(cost, "%.0f") + " ns",
		met:    medianOf(cost) < missGoal,
	}}
}

// throughputGoals are that the target's own traffic loses less than with the peer: of the stream, whose ends share a CPU
// with what the capture takes there.
func throughputGoals(r *results, e *engine) []goal {
	rate := func(engine string) []float64 { return r.each(scenarioStream, engine, (*sample).gigabits) }
	bare, ours, theirs := rate(engineNone), rate(e.name), rate(engineMain)
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
		met:    medianOf(left) > medianOf(theirsLeft),
	}}
}

// rateGoals are that nothing is lost of large packets at the rate of the goal or, where the sender cannot send as fast,
// at its limit.
func rateGoals(r *results, e *engine) []goal {
	s := scenarioByName(scenarioLarge)
	full := r.each(s.name, e.name, (*sample).pps)
	if len(full) == 0 {
		return nil
	}
	_, most := bounds(r.each(s.name, e.name, (*sample).loss))
	highest := rate{PPS: medianOf(full), Bound: most == 0}
	i := slices.IndexFunc(r.Rates, func(o rate) bool { return o.Scenario == s.name && o.Engine == e.name })
	if i >= 0 {
		highest = r.Rates[i] // of a sender that makes no pause
	}
	lossless := highest.PPS * float64(s.size) * 8
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

// lossGoals are that an engine of Sonde's loses nothing where tcpdump does.
func lossGoals(r *results, e *engine) []goal {
	text := e.label + ": no loss at full rate where tcpdump loses"
	measured, places, lossy := false, 0, ""
	for i := range scenarios {
		s := &scenarios[i]
		ours := r.each(s.name, e.name, (*sample).loss)
		measured = measured || len(ours) > 0
		worst := 0.0
		for _, peer := range []string{engineMain, "tcpdump"} {
			_, most := bounds(r.each(s.name, peer, (*sample).loss))
			worst = max(worst, most)
		}
		if worst == 0 {
			continue
		}
		places++
		if _, most := bounds(ours); most > 0 {
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

func memoryGoals(r *results, e *engine) []goal {
	var worst float64
	for i := range scenarios {
		_, most := bounds(r.each(scenarios[i].name, e.name, (*sample).beside))
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
