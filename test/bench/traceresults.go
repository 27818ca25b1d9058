package main

import (
	"fmt"
	"slices"
	"strings"
)

// tracedAt returns the run of a round.
func (r *results) tracedAt(loop, tracer string, bystander bool, round int) *traced {
	i := slices.IndexFunc(r.Traces, func(t traced) bool {
		return t.Loop == loop && t.Tracer == tracer && t.Bystander == bystander && t.Round == round
	})
	if i < 0 {
		return nil
	}
	return &r.Traces[i]
}

// eachTraced is one figure of every round of a tracer at a loop.
func (r *results) eachTraced(loop, tracer string, bystander bool, figure func(*traced) float64) []float64 {
	var out []float64
	for round := range r.Rounds {
		if t := r.tracedAt(loop, tracer, bystander, round); t != nil {
			out = append(out, figure(t))
		}
	}
	return out
}

// timesLess is how many times less a tracer takes than another at a loop, round by round.
func (r *results) timesLess(loop, tracer, than string, figure func(*traced) float64) []float64 {
	var out []float64
	for round := range r.Rounds {
		ours, theirs := r.tracedAt(loop, tracer, false, round), r.tracedAt(loop, than, false, round)
		if ours == nil || theirs == nil || figure(ours) <= 0 || figure(theirs) <= 0 {
			continue
		}
		out = append(out, figure(theirs)/figure(ours))
	}
	return out
}

// What a trace is to reach.
const (
	openTimesGoal   = 40.0
	readTimesGoal   = 100.0
	bystanderGoal   = 40.0 // ns
	binaryTimesGoal = 50.0
	textTimesGoal   = 10.0
	eventRateGoal   = 2e6
	tracerGoal      = 96 << 20
)

// timesGoal is a goal that a tracer takes so many times less than a peer.
type timesGoal struct {
	text               string
	loop, tracer, than string
	figure             func(*traced) float64
	times              float64
}

var timesGoals = []timesGoal{
	{
		"time added to a traced openat or close: at most 1/40 of bpftrace printf's", loopOpen, tracerSonde, tracerMain,
		(*traced).addedEach, openTimesGoal,
	},
	{
		"time added to openat, read and close, of which openat and close are traced: at most 1/40 of bpftrace printf's for openat alone", loopOpen, tracerSonde, tracerOpens,
		(*traced).added, openTimesGoal,
	},
	{
		"time added to a traced read of a byte: at most 1/100 of bpftrace printf's", loopRead, tracerSonde, tracerMain,
		(*traced).addedEach, readTimesGoal,
	},
	{"reader's CPU time for an openat or close, binary: at most 1/50 of bpftrace's", loopOpen, tracerBinary, tracerMain, (*traced).readerEach, binaryTimesGoal},
	{"reader's CPU time for a read, binary: at most 1/50 of bpftrace's", loopRead, tracerBinary, tracerMain, (*traced).readerEach, binaryTimesGoal},
	{"reader's CPU time for an openat or close, NDJSON: at most 1/10 of bpftrace's", loopOpen, tracerSonde, tracerMain, (*traced).readerEach, textTimesGoal},
	{"reader's CPU time for a read, NDJSON: at most 1/10 of bpftrace's", loopRead, tracerSonde, tracerMain, (*traced).readerEach, textTimesGoal},
}

func traceGoals(r *results) []goal {
	var out []goal
	for _, g := range timesGoals {
		if v := r.timesLess(g.loop, g.tracer, g.than, g.figure); len(v) > 0 {
			out = append(out, goal{text: g.text, figure: fraction(v), met: medianOf(v) >= g.times})
		}
	}
	for i := range loops {
		if v := r.eachTraced(loops[i].name, tracerSonde, true, (*traced).addedEach); len(v) > 0 {
			out = append(out, goal{
				text:   fmt.Sprintf("time added to a call of processes that are not traced (%s): at most %.0f ns", loops[i].label, bystanderGoal),
				figure: spread(v, "%.0f") + " ns", met: medianOf(v) <= bystanderGoal,
			})
		}
	}
	for _, name := range []string{tracerBinary, tracerSonde} {
		if i := slices.IndexFunc(r.TraceRates, func(o traceRate) bool { return o.Tracer == name }); i >= 0 {
			out = append(out, goal{
				text:   fmt.Sprintf("%s: no loss at %.0f million events per second", tracerByName(name).label, eventRateGoal/1e6),
				figure: traceRateCell(&r.TraceRates[i]), met: r.TraceRates[i].Rate >= eventRateGoal,
			})
		}
	}
	most := 0.0
	for i := range r.Traces {
		if t := &r.Traces[i]; ours(t.Tracer) {
			most = max(most, float64(t.Memory.Peak))
		}
	}
	return append(out, goal{
		text: fmt.Sprintf("memory with rings: below %d MiB", tracerGoal>>20), figure: fmt.Sprintf("%.1f MiB at most", most/(1<<20)),
		met: most > 0 && most < tracerGoal,
	})
}

// ours tells whether a tracer is Sonde.
func ours(tracer string) bool { return strings.HasPrefix(tracer, tracerSonde) }

// fraction writes how many times less something is as a part of one, with the least and the most.
func fraction(v []float64) string {
	least, most := bounds(v)
	format := func(n float64) string {
		if n < 10 {
			return fmt.Sprintf("1/%.1f", n)
		}
		return fmt.Sprintf("1/%.0f", n)
	}
	return fmt.Sprintf("%s (%s–%s) of it", format(medianOf(v)), format(most), format(least))
}
