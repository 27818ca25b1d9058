package figures

import (
	"fmt"
	"slices"
	"strings"
)

// tracedAt returns the run of a round.
func (r *Results) tracedAt(loop, tracer string, bystander bool, round int) *Traced {
	i := slices.IndexFunc(r.Traces, func(t Traced) bool {
		return t.Loop == loop && t.Tracer == tracer && t.Bystander == bystander && t.Round == round
	})
	if i < 0 {
		return nil
	}
	return &r.Traces[i]
}

// eachTraced returns one figure for every round of a tracer with a loop.
func (r *Results) eachTraced(loop, tracer string, bystander bool, figure func(*Traced) float64) []float64 {
	var out []float64
	for round := range r.Rounds {
		if t := r.tracedAt(loop, tracer, bystander, round); t != nil {
			out = append(out, figure(t))
		}
	}
	return out
}

// timesLess returns how many times cheaper a tracer is than another with a loop, for each round.
func (r *Results) timesLess(loop, tracer, than string, figure func(*Traced) float64) []float64 {
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

// Goals of traces.
const (
	openTimesGoal   = 40.0
	readTimesGoal   = 100.0
	bystanderGoal   = 40.0 // ns
	binaryTimesGoal = 50.0
	textTimesGoal   = 10.0
	eventRateGoal   = 2e6
	tracerGoal      = 96 << 20
)

// timesGoal requires that a tracer is several times cheaper than a peer.
type timesGoal struct {
	text               string
	loop, tracer, than string
	figure             func(*Traced) float64
	times              float64
}

var timesGoals = []timesGoal{
	{
		"time added to a traced openat or close: at most 1/40 of bpftrace printf's", LoopOpen, TracerSonde, TracerMain,
		(*Traced).addedEach, openTimesGoal,
	},
	{
		"time added to openat, read and close, with openat and close traced: at most 1/40 of bpftrace printf's for openat alone", LoopOpen, TracerSonde, TracerOpens,
		(*Traced).added, openTimesGoal,
	},
	{
		"time added to a traced read of a byte: at most 1/100 of bpftrace printf's", LoopRead, TracerSonde, TracerMain,
		(*Traced).addedEach, readTimesGoal,
	},
	{"reader's CPU time for an openat or close, binary: at most 1/50 of bpftrace's", LoopOpen, TracerBinary, TracerMain, (*Traced).readerEach, binaryTimesGoal},
	{"reader's CPU time for a read, binary: at most 1/50 of bpftrace's", LoopRead, TracerBinary, TracerMain, (*Traced).readerEach, binaryTimesGoal},
	{"reader's CPU time for an openat or close, NDJSON: at most 1/10 of bpftrace's", LoopOpen, TracerSonde, TracerMain, (*Traced).readerEach, textTimesGoal},
	{"reader's CPU time for a read, NDJSON: at most 1/10 of bpftrace's", LoopRead, TracerSonde, TracerMain, (*Traced).readerEach, textTimesGoal},
}

func traceGoals(r *Results) []goal {
	var out []goal
	for _, g := range timesGoals {
		if v := r.timesLess(g.loop, g.tracer, g.than, g.figure); len(v) > 0 {
			out = append(out, goal{text: g.text, figure: fraction(v), met: MedianOf(v) >= g.times})
		}
	}
	for i := range Loops {
		if v := r.eachTraced(Loops[i].Name, TracerSonde, true, (*Traced).addedEach); len(v) > 0 {
			out = append(out, goal{
				text:   fmt.Sprintf("time added to a call of processes that are not traced (%s): at most %.0f ns", Loops[i].Label, bystanderGoal),
				figure: spread(v, "%.0f") + " ns", met: MedianOf(v) <= bystanderGoal,
			})
		}
	}
	for _, name := range []string{TracerBinary, TracerSonde} {
		if i := slices.IndexFunc(r.TraceRates, func(o TraceRate) bool { return o.Tracer == name }); i >= 0 {
			out = append(out, goal{
				text:   fmt.Sprintf("%s: no loss at %.0f million events per second", TracerByName(name).Label, eventRateGoal/1e6),
				figure: traceRateCell(&r.TraceRates[i]), met: r.TraceRates[i].Rate >= eventRateGoal,
			})
		}
	}
	most := 0.0
	for i := range r.Traces {
		if t := &r.Traces[i]; Ours(t.Tracer) {
			most = max(most, float64(t.Memory.Peak))
		}
	}
	return append(out, goal{
		text: fmt.Sprintf("memory with rings: below %d MiB", tracerGoal>>20), figure: fmt.Sprintf("%.1f MiB at most", most/(1<<20)),
		met: most > 0 && most < tracerGoal,
	})
}

// Ours reports whether a tracer is Sonde.
func Ours(tracer string) bool { return strings.HasPrefix(tracer, TracerSonde) }

// fraction returns how many times cheaper something is as a fraction, with its minimum and maximum.
func fraction(v []float64) string {
	least, most := Bounds(v)
	format := func(n float64) string {
		if n < 10 {
			return fmt.Sprintf("1/%.1f", n)
		}
		return fmt.Sprintf("1/%.0f", n)
	}
	return fmt.Sprintf("%s (%s–%s) of it", format(MedianOf(v)), format(most), format(least))
}
