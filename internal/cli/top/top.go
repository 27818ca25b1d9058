// Package top shows while a capture runs what is busiest: conversations, or system calls. Key presses choose the column by which the
// rows are sorted.
package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/live"
)

// interval is the time over which rates are measured.
const interval = time.Second

// KeyName sorts by name.
const KeyName = 'n'

// column has a number in each row.
type column struct {
	// key sorts by it, the largest number first.
	key  byte
	head string
	// word names it in the caption.
	word   string
	format func(float64) string
}

// row has the numbers of the columns, and names.
type row struct {
	numbers []float64
	names   []string
}

// source counts what the rows show.
type source interface {
	// sample returns a row for each thing that was ever counted, with rates since the last call, which was some time ago.
	sample(since time.Duration) []row
}

// Top is a table that is sampled once a second.
type Top struct {
	source  source
	what    string
	columns []column
	heads   []string // of the names

	mu      sync.Mutex
	by      int // index of a column; their number is the name
	sampled time.Time
	rows    []row
}

// Press chooses the column of a key. Other keys do nothing.
func (t *Top) Press(key byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	by := slices.IndexFunc(t.columns, func(c column) bool { return c.key == key })
	if key == KeyName {
		by = len(t.columns)
	}
	if by >= 0 {
		t.by = by
		t.sort()
	}
}

// Table returns the table at the time now.
func (t *Top) Table(now time.Time) *live.Table {
	t.mu.Lock()
	defer t.mu.Unlock()
	if since := now.Sub(t.sampled); since >= interval {
		if t.sampled.IsZero() {
			since = interval
		}
		t.rows, t.sampled = t.source.sample(since), now
		t.sort()
	}
	v := &live.Table{Caption: t.caption(), Sides: strings.Repeat("r", len(t.columns)) + strings.Repeat("l", len(t.heads))}
	heads := make([]string, 0, len(t.columns)+len(t.heads))
	for _, c := range t.columns {
		heads = append(heads, c.head)
	}
	v.Rows = append(v.Rows, append(heads, t.heads...))
	for _, r := range t.rows[:min(len(t.rows), maxRows)] {
		cells := make([]string, 0, len(heads))
		for i, c := range t.columns {
			cells = append(cells, c.format(r.numbers[i]))
		}
		v.Rows = append(v.Rows, append(cells, r.names...))
	}
	return v
}

// maxRows is more than a terminal shows.
const maxRows = 200

// caption says what the table has, and which keys there are.
func (t *Top) caption() string {
	by := "name"
	if t.by < len(t.columns) {
		by = t.columns[t.by].word
	}
	keys := make([]string, 0, len(t.columns)+2)
	for _, c := range t.columns {
		keys = append(keys, fmt.Sprintf("%c %s", c.key, c.word))
	}
	keys = append(keys, "n name", "q quit")
	return fmt.Sprintf("%d %s by %s. Keys: %s", len(t.rows), t.what, by, strings.Join(keys, ", "))
}

// sort sorts the rows by the chosen column, and then by name.
func (t *Top) sort() {
	slices.SortFunc(t.rows, func(a, b row) int {
		if t.by < len(t.columns) {
			if c := cmp.Compare(b.numbers[t.by], a.numbers[t.by]); c != 0 {
				return c
			}
		}
		return slices.Compare(a.names, b.names)
	})
}

// count formats a number of things.
func count(n float64) string { return fmt.Sprintf("%.0f", n) }

// size formats a number of bytes.
func size(n float64) string { return live.Bytes(int64(n)) }

// rate returns how much a count has grown in a second.
func rate(now, before int64, since time.Duration) float64 {
	return float64(now-before) / since.Seconds()
}
