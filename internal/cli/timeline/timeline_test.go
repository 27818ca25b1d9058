package timeline

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAdd(t *testing.T) {
	const bin = firstWidth
	line := New(2)
	line.Add(0, 10*bin, 1)
	line.Add(1, 12*bin, 5)
	line.Add(0, 9*bin+1, 2) // earlier than the first
	if got, want := line.Counts(0), []uint64{2, 1, 0, 0}; !cmp.Equal(want, got) {
		t.Errorf("first series %v, want %v", got, want)
	}
	if got, want := line.Counts(1), []uint64{0, 0, 0, 5}; !cmp.Equal(want, got) {
		t.Errorf("second series %v, want %v", got, want)
	}
	if line.Width() != time.Duration(bin) || line.Start().UnixNano() != int64(9*bin) {
		t.Errorf("bins of %v from %v", line.Width(), line.Start())
	}
}

func TestMemoryIsBounded(t *testing.T) {
	line := New(1)
	times := []uint64{1e18, 1e18 + 1e9, 1e18 + 3600e9, 1e18 - 86400e9, 0, math.MaxUint64, 5}
	for _, at := range times {
		line.Add(0, at, 1)
	}
	var sum uint64
	for _, n := range line.Counts(0) {
		sum += n
	}
	if sum != uint64(len(times)) {
		t.Errorf("%d events, want %d", sum, len(times))
	}
	if n := len(line.Counts(0)); n > maxBins {
		t.Errorf("%d bins", n)
	}
}

func TestEmpty(t *testing.T) {
	if line := New(1); len(line.Counts(0)) != 0 {
		t.Error("bins without an event")
	}
}
