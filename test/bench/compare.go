package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// agreement is how far the ratios of two runs may lie apart.
const agreement = 0.15

var errDisagree = errors.New("the two runs do not agree: measure again, with nothing else running on the machine")

func runCompare(_ context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New(usage)
	}
	a, err := readResults(args[0])
	if err != nil {
		return err
	}
	b, err := readResults(args[1])
	if err != nil {
		return err
	}
	return compare(os.Stdout, a, b)
}

// compare prints the ratios of two runs side by side, and returns an error when some lie too far apart.
func compare(w io.Writer, a, b *results) error {
	compared, apart := 0, 0
	for i := range scenarios {
		for _, engine := range own {
			here, far := compareCosts(w, a, b, &scenarios[i], engineByName(engine))
			compared, apart = compared+here, apart+far
		}
	}
	traces, far := compareTraces(w, a, b)
	compared, apart = compared+traces, apart+far
	switch {
	case compared == 0:
		return errors.New("the two runs have no scenario in common")
	case apart > 0:
		return errDisagree
	}
	return nil
}

// compareCosts prints what an engine of Sonde's took in a scenario of what the peer did, in two runs.
func compareCosts(w io.Writer, a, b *results, s *scenario, e *engine) (compared, apart int) {
	one, two := medianOf(a.ratios(s, e.name, engineMain)), medianOf(b.ratios(s, e.name, engineMain))
	if s.misses || one <= 0 || two <= 0 {
		return 0, 0 // a difference near to nothing has no ratio
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

// compareTraces prints how many times less Sonde takes than bpftrace, in two runs.
func compareTraces(w io.Writer, a, b *results) (compared, apart int) {
	for _, g := range timesGoals {
		one, two := medianOf(a.timesLess(g.loop, g.tracer, g.than, g.figure)), medianOf(b.timesLess(g.loop, g.tracer, g.than, g.figure))
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
