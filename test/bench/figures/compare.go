// Package figures holds the results of bench: what was measured, the goals, and the pages that report both.
package figures

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// agreement is the largest relative difference between the ratios of two runs.
const agreement = 0.15

var errDisagree = errors.New("the two runs do not agree: measure again, with nothing else running on the machine")

// Compare prints the ratios of two runs side by side. It returns an error if some differ too much.
func Compare(w io.Writer, a, b *Results) error {
	compared, apart := 0, 0
	for i := range Scenarios {
		for _, engine := range own {
			here, far := compareCosts(w, a, b, &Scenarios[i], EngineByName(engine))
			compared, apart = compared+here, apart+far
		}
	}
	traces, far := compareTraces(w, a, b)
	compared, apart = compared+traces, apart+far
	intercepts, far := compareIntercepts(w, &a.Intercept, &b.Intercept)
	compared, apart = compared+intercepts, apart+far
	lives, far := compareLives(w, &a.Live, &b.Live)
	compared, apart = compared+lives, apart+far
	switch {
	case compared == 0:
		return errors.New("the two runs have no scenario in common")
	case apart > 0:
		return errDisagree
	}
	return nil
}

// compareCosts prints the costs of one of Sonde's engines relative to the peer's, in two runs.
func compareCosts(w io.Writer, a, b *Results, s *Scenario, e *Engine) (compared, apart int) {
	one, two := MedianOf(a.ratios(s, e.Name, EngineMain)), MedianOf(b.ratios(s, e.Name, EngineMain))
	if s.Misses || one <= 0 || two <= 0 {
		return 0, 0 // the ratio of two costs near zero means nothing
	}
	off := math.Abs(one/two - 1)
	verdict := "agree"
	if off > agreement {
		verdict = "DIFFER"
		apart = 1
	}
	fmt.Fprintf(w, "%-24s %-15s / tcpdump -B 65536: %.2f and %.2f, %4.1f %% apart: %s\n", place(s), e.label, one, two, 100*off, verdict)
	return 1, apart
}

// compareTraces prints how many times cheaper Sonde is than bpftrace, in two runs.
func compareTraces(w io.Writer, a, b *Results) (compared, apart int) {
	for _, g := range timesGoals {
		one, two := MedianOf(a.timesLess(g.loop, g.tracer, g.than, g.figure)), MedianOf(b.timesLess(g.loop, g.tracer, g.than, g.figure))
		if one == 0 || two == 0 {
			continue
		}
		compared++
		off := math.Abs(one/two - 1)
		verdict := "agree"
		if off > agreement {
			verdict = "DIFFER"
			apart++
		}
		what, _, _ := strings.Cut(g.text, ":")
		fmt.Fprintf(w, "%s: 1/%.0f and 1/%.0f of bpftrace's, %.1f %% apart: %s\n", what, one, two, 100*off, verdict)
	}
	return compared, apart
}

// compareIntercepts prints the figures of the goals of intercepts, in two runs.
func compareIntercepts(w io.Writer, a, b *Intercept) (compared, apart int) {
	for _, g := range interceptGoals {
		one, two := g.each(a), g.each(b)
		if len(one) == 0 || len(two) == 0 {
			continue
		}
		compared++
		off := math.Abs(MedianOf(one)/MedianOf(two) - 1)
		verdict := "agree"
		if off > agreement {
			verdict = "DIFFER"
			apart++
		}
		fmt.Fprintf(w, "%s: %s and %s, %.1f %% apart: %s\n", g.text, g.show(one), g.show(two), 100*off, verdict)
	}
	return compared, apart
}

// compareLives prints the figures of the goals of live captures, in two runs. A figure of zero has no ratio.
func compareLives(w io.Writer, a, b *Live) (compared, apart int) {
	for _, g := range liveGoals() {
		one, two := g.each(a), g.each(b)
		if MedianOf(one) <= 0 || MedianOf(two) <= 0 {
			continue
		}
		compared++
		off := math.Abs(MedianOf(one)/MedianOf(two) - 1)
		verdict := "agree"
		if off > agreement {
			verdict = "DIFFER"
			apart++
		}
		fmt.Fprintf(w, "%s: %s and %s, %.1f %% apart: %s\n", g.text, g.show(one), g.show(two), 100*off, verdict)
	}
	return compared, apart
}
