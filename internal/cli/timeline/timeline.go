// Package timeline counts events by time. Its memory is bounded: the bins double their width as the covered time grows.
package timeline

import (
	"slices"
	"time"
)

const (
	// maxBins is how many steps of a chart can be told apart.
	maxBins = 400
	// firstWidth is the width of a bin at first, in nanoseconds. Six times doubled it is 1 ms.
	firstWidth = uint64(time.Millisecond) / 64
)

// Timeline counts several series of events in bins of equal width. Use New.
type Timeline struct {
	width  uint64 // of a bin in nanoseconds
	start  uint64 // number of the first bin: its time divided by width
	series [][]uint64
}

// New returns a Timeline of a number of series.
func New(series int) *Timeline {
	return &Timeline{width: firstWidth, series: make([][]uint64, series)}
}

// Add adds n to a series at a time in nanoseconds since 1970.
func (t *Timeline) Add(series int, at, n uint64) {
	if len(t.series[0]) == 0 {
		t.start = at / t.width
		t.grow(1)
	}
	for !t.fits(at) {
		t.halve()
	}
	bin := at / t.width
	if bin < t.start {
		t.prepend(int(t.start - bin))
	}
	t.grow(int(bin-t.start) + 1)
	t.series[series][bin-t.start] += n
}

// fits reports whether all bins and that of the time are at most maxBins.
func (t *Timeline) fits(at uint64) bool {
	bin, end := at/t.width, t.start+uint64(len(t.series[0]))
	return max(bin+1, end)-min(bin, t.start) <= maxBins
}

func (t *Timeline) prepend(n int) {
	t.start -= uint64(n)
	for i := range t.series {
		t.series[i] = slices.Insert(t.series[i], 0, make([]uint64, n)...)
	}
}

func (t *Timeline) grow(n int) {
	for i := range t.series {
		if missing := n - len(t.series[i]); missing > 0 {
			t.series[i] = append(t.series[i], make([]uint64, missing)...)
		}
	}
}

// halve doubles the width of the bins.
func (t *Timeline) halve() {
	odd := t.start % 2
	for i, all := range t.series {
		halved := make([]uint64, (uint64(len(all))+odd+1)/2)
		for j, n := range all {
			halved[(uint64(j)+odd)/2] += n
		}
		t.series[i] = halved
	}
	t.width *= 2
	t.start /= 2
}

// Start returns the time at which the first bin begins, and Width that of each bin.
func (t *Timeline) Start() time.Time {
	ns := t.start * t.width
	return time.Unix(int64(ns/1e9), int64(ns%1e9)).UTC()
}

// Width returns the width of each bin.
func (t *Timeline) Width() time.Duration { return time.Duration(t.width) }

// Counts returns the bins of a series, the earliest first.
func (t *Timeline) Counts(series int) []uint64 { return t.series[series] }
