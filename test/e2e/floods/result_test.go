//go:build e2e

package floods

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	// goal is how much longer than without a flood the victim may wait, as a factor of p99.
	goal = 3
	// noticed is how long a wait must be to fail the test. Below it, a busy machine explains it as well.
	noticed = time.Second
)

// result is a row of the matrix.
type result struct {
	flood, answers string
	quiet, during  phase
	restarts       int
}

// slower is p99 beside the flood, divided by p99 without it.
func (r result) slower(m measure) float64 {
	return float64(r.during[m].p99()) / float64(r.quiet[m].p99())
}

// verdict says whether the goal was reached: alone, or if what the API server itself takes longer is left out. It lists the measures
// that missed it otherwise.
func (r result) verdict() (text string, missed []measure) {
	beside := false
	for m := range control {
		switch slower := r.slower(m); {
		case len(r.during[m].failed) > 0:
			missed = append(missed, m)
		case slower <= goal:
		case slower <= goal*r.slower(control):
			beside = true
		default:
			missed = append(missed, m)
		}
	}
	switch {
	case r.restarts > 0:
		return "missed: restarts", missed
	case len(missed) > 0:
		return fmt.Sprintf("missed: %s", strings.Trim(fmt.Sprint(missed), "[]")), missed
	case beside:
		return "reached, but for what the API server alone takes longer", nil
	}
	return "reached", nil
}

// judge fails the test if the manager was restarted, the victim got an error, or waited longer than a busy machine explains.
func (r result) judge(t *testing.T) {
	t.Helper()
	text, missed := r.verdict()
	t.Logf("%s: %s", r.flood, text)
	if r.restarts > 0 {
		t.Errorf("the manager was restarted %d times, want none", r.restarts)
	}
	for m := range measures {
		if failed := r.during[m].failed; len(failed) > 0 {
			t.Errorf("%s: %d of %d failed, want none; the first one with %v", m, len(failed), len(r.during[m].took), failed[0])
		}
	}
	for _, m := range missed {
		if took := r.during[m].p99(); took > noticed {
			t.Errorf("%s: p99 %v, %.1f times of %v without the flood; the API server alone: %.1f times", m, took, r.slower(m), r.quiet[m].p99(), r.slower(control))
		}
	}
}

// table is the section of docs/reliability.md.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| one tenant | answers by HTTP status, or connections |")
	for m := range measures {
		fmt.Fprintf(&b, " %s |", m)
	}
	b.WriteString(" restarts | goal |\n|---|---|" + strings.Repeat("---|", int(measures)+2) + "\n")
	fewest := map[measure][2]int{}
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %s |", r.flood, r.answers)
		for m := range measures {
			fmt.Fprintf(&b, " %s → %s (%.1f×)", ms(r.quiet[m]), ms(r.during[m]), r.slower(m))
			if n := len(r.during[m].failed); n > 0 {
				fmt.Fprintf(&b, ", %d failed", n)
			}
			b.WriteString(" |")
			now := [2]int{len(r.quiet[m].took), len(r.during[m].took)}
			if least, ok := fewest[m]; ok {
				now = [2]int{min(now[0], least[0]), min(now[1], least[1])}
			}
			fewest[m] = now
		}
		text, _ := r.verdict()
		fmt.Fprintf(&b, " %d | %s |\n", r.restarts, text)
	}
	b.WriteString("\nSamples of each row, at least (without and beside the flood):")
	for m := range measures {
		fmt.Fprintf(&b, " %s %d and %d%s", m, fewest[m][0], fewest[m][1], map[bool]string{true: ".\n", false: ";"}[m == measures-1])
	}
	return b.String()
}

func ms(s samples) string { return fmt.Sprintf("%d ms", s.p99().Milliseconds()) }
