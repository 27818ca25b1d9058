package traceview

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// slowest are the calls that took longest, and how many took how long.
type slowest struct {
	top []slowCall
	// took counts by the length of the nanoseconds in bits: n is from 2^(n-1) up to 2^n.
	took [65]uint64
}

type slowCall struct {
	took time.Duration
	pod  string
	row  []string
}

func (s *slowest) add(from *Source, r *tracefmt.Record) {
	if r.Took < 0 {
		return
	}
	s.took[bits.Len64(uint64(r.Took))]++
	if len(s.top) == topRows && r.Took <= s.top[topRows-1].took {
		return
	}
	at := slices.IndexFunc(s.top, func(c slowCall) bool { return c.took < r.Took })
	if at < 0 {
		at = len(s.top)
	}
	s.top = slices.Insert(s.top, at, slowCall{r.Took, from.Pod(), []string{
		took(r.Took), clockTime(r.Time), who(r), string(r.Comm), r.Call, result(r), table.Truncate(what(r, from.arch()), maxText),
	}})
	s.top = s.top[:min(topRows, len(s.top))]
}

func (s *slowest) text(b *strings.Builder, pods bool) {
	if len(s.top) == 0 {
		b.WriteString("\nHow long calls took was not measured.\n")
		return
	}
	b.WriteString("\nSlowest calls:\n")
	rows := [][]string{{"TOOK", "ENDED", "PROCESS", "NAME", "CALL", "RESULT", "ABOUT"}}
	for _, c := range s.top {
		row := slices.Clone(c.row)
		if pods {
			row[2] = quoted(c.pod) + "/" + row[2]
		}
		rows = append(rows, row)
	}
	b.WriteString(table.Text("rllllrl", rows))
	s.histogram(b)
}

// histogram has a line for each power of two, from the shortest to the longest call.
func (s *slowest) histogram(b *strings.Builder) {
	const width = 40
	var most uint64
	first, last := len(s.took), 0
	for i, n := range s.took {
		if n > 0 {
			first, last, most = min(first, i), i, max(most, n)
		}
	}
	b.WriteString("\nHow long calls took:\n")
	rows := [][]string{{"FROM", "BELOW", "CALLS", ""}}
	for i := first; i <= last; i++ {
		n := s.took[i]
		bar := int(float64(n) / float64(most) * width)
		if n > 0 {
			bar = max(bar, 1)
		}
		rows = append(rows, []string{bound(i - 1), bound(i), number(n), strings.Repeat("#", bar)})
	}
	b.WriteString(table.Text("rrrl", rows))
}

// bound is 2^n ns; below zero there is nothing.
func bound(n int) string {
	if n < 0 {
		return "0ns"
	}
	if n >= 63 {
		return fmt.Sprintf("2^%d ns", n)
	}
	return took(1 << n)
}
