package top

import (
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/traceview"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// maxCalls bounds the rows; a kernel has fewer system calls. Further calls have one row.
const maxCalls = 1 << 10

const otherCalls = "other calls"

// Calls is the source of the table of a trace. It is a traceview.Sink.
type Calls struct {
	mu    sync.Mutex
	calls map[string]*call
}

type call struct {
	total, before, errors int64
	took                  histogram
	longest               time.Duration
}

// NewCalls returns a table, and what counts its events.
func NewCalls() (*Top, *Calls) {
	c := &Calls{calls: map[string]*call{}}
	return &Top{
		source: c, what: "calls", heads: []string{"CALL"},
		columns: []column{
			{'c', "CALLS/S", "calls/s", count},
			{'t', "CALLS", "total", count},
			{'e', "ERRORS", "errors", count},
			{'l', "P50", "median", duration},
			{'m', "MAX", "longest", duration},
		},
	}, c
}

// duration formats nanoseconds; negative is none.
func duration(n float64) string {
	if n < 0 {
		return "-"
	}
	d := time.Duration(n)
	for _, unit := range []time.Duration{time.Microsecond, time.Millisecond, time.Second} {
		if d < 1000*unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.Round(time.Second).String()
}

// Line counts an event.
func (c *Calls) Line(_ *traceview.Source, line *tracefmt.Line) error {
	r := line.Record
	if r == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := r.Call
	if c.calls[name] == nil && len(c.calls) >= maxCalls {
		name = otherCalls
	}
	counted := c.calls[name]
	if counted == nil {
		counted = &call{longest: -1}
		c.calls[name] = counted
	}
	counted.total++
	if traceview.Failed(r) {
		counted.errors++
	}
	if r.Took >= 0 {
		counted.took.add(r.Took)
		counted.longest = max(counted.longest, r.Took)
	}
	return nil
}

// Damaged omits the line. The summary of the file reports it.
func (*Calls) Damaged(*traceview.Source, error) error { return nil }

// End does nothing: other Pods may have more lines.
func (*Calls) End(*traceview.Source) {}

// Idle does nothing: the table is drawn all the time.
func (*Calls) Idle() error { return nil }

func (c *Calls) sample(since time.Duration) []row {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows := make([]row, 0, len(c.calls))
	for name, n := range c.calls {
		rows = append(rows, row{
			numbers: []float64{rate(n.total, n.before, since), float64(n.total), float64(n.errors), n.took.median(), float64(n.longest)},
			names:   []string{name},
		})
		n.before = n.total
	}
	return rows
}

// histogram counts durations in steps of a quarter of their power of two, so that a median is exact to 25%.
type histogram struct {
	counts [64 * 4]uint32
	total  uint64
}

func (h *histogram) add(d time.Duration) {
	h.counts[step(uint64(d))]++
	h.total++
}

// step returns the index of a duration in nanoseconds.
func step(n uint64) int {
	if n < 4 {
		return int(n)
	}
	power := bits.Len64(n) - 1
	return 4*power + int(n>>(power-2)&3)
}

// median returns the middle of the step with the median, in nanoseconds; negative if there is none.
func (h *histogram) median() float64 {
	if h.total == 0 {
		return -1
	}
	below := uint64(0)
	for i, n := range h.counts {
		if below += uint64(n); 2*below < h.total {
			continue
		}
		if i < 4 {
			return float64(i)
		}
		low := math.Ldexp(1+float64(i%4)/4, i/4)
		return low + math.Ldexp(1, i/4)/8
	}
	return -1
}
