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

// slowRows is how many of the slowest calls are kept. Text shows topRows of them.
const slowRows = 50

// slowCalls are the slowest calls and the distribution of durations.
type slowCalls struct {
	top []slowCall
	// byBits[n] counts calls of 2^(n-1) up to 2^n nanoseconds.
	byBits [65]uint64
}

type slowCall struct {
	took time.Duration
	pod  string
	row  []string
}

func (s *slowCalls) add(from *Source, r *tracefmt.Record) {
	if r.Took < 0 {
		return
	}
	s.byBits[bits.Len64(uint64(r.Took))]++
	if len(s.top) == slowRows && r.Took <= s.top[slowRows-1].took {
		return
	}
	at := slices.IndexFunc(s.top, func(c slowCall) bool { return c.took < r.Took })
	if at < 0 {
		at = len(s.top)
	}
	s.top = slices.Insert(s.top, at, slowCall{r.Took, from.Pod(), []string{
		formatDuration(r.Took), clockTime(r.Time), processName(r), string(r.Comm), r.Call, result(r), table.Truncate(description(r, from.arch()), maxText),
	}})
	s.top = s.top[:min(slowRows, len(s.top))]
}

func (s *slowCalls) text(b *strings.Builder, pods bool) {
	if len(s.top) == 0 {
		b.WriteString("\nThe duration of the calls was not measured.\n")
		return
	}
	b.WriteString("\nSlowest calls:\n")
	rows := [][]string{{"TOOK", "ENDED", "PROCESS", "NAME", "CALL", "RESULT", "ABOUT"}}
	for _, c := range s.top[:min(topRows, len(s.top))] {
		row := slices.Clone(c.row)
		if pods {
			row[2] = quoted(c.pod) + "/" + row[2]
		}
		rows = append(rows, row)
	}
	b.WriteString(table.Text("rllllrl", rows))
	s.histogram(b)
}

// histogram writes a line for each power of two from the shortest to the longest call.
func (s *slowCalls) histogram(b *strings.Builder) {
	const width = 40
	var most uint64
	first, last := len(s.byBits), 0
	for i, n := range s.byBits {
		if n > 0 {
			first, last, most = min(first, i), i, max(most, n)
		}
	}
	b.WriteString("\nHow long calls took:\n")
	rows := [][]string{{"FROM", "BELOW", "CALLS", ""}}
	for i := first; i <= last; i++ {
		n := s.byBits[i]
		bar := int(float64(n) / float64(most) * width)
		if n > 0 {
			bar = max(bar, 1)
		}
		rows = append(rows, []string{bound(i - 1), bound(i), number(n), strings.Repeat("#", bar)})
	}
	b.WriteString(table.Text("rrrl", rows))
}

// bound returns 2^n ns as text, and zero for a negative n.
func bound(n int) string {
	if n < 0 {
		return "0ns"
	}
	if n >= 63 {
		return fmt.Sprintf("2^%d ns", n)
	}
	return formatDuration(1 << n)
}
