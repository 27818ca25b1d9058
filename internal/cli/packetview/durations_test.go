package packetview

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDurations(t *testing.T) {
	var d Durations
	if d.Quantile(.5) != 0 || d.Mean() != 0 || d.Histogram() != nil {
		t.Error("figures without a duration")
	}
	for _, ms := range []int64{3, 1, 2, -5, 10} {
		d.add(time.Duration(ms) * time.Millisecond)
	}
	if d.Count != 5 || d.Shortest != 0 || d.Max != 10*time.Millisecond || d.Mean() != 3200*time.Microsecond {
		t.Errorf("%+v", d)
	}
	for q, want := range map[float64]time.Duration{0: 0, .2: 0, .21: time.Millisecond, .5: 2 * time.Millisecond, .95: 10 * time.Millisecond, 1: 10 * time.Millisecond} {
		if got := d.Quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

func TestHistogram(t *testing.T) {
	var d Durations
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	for _, n := range []int64{150, 200, 499, 500, 1999} {
		d.add(us(n))
	}
	want := []Bucket{{us(100), us(200), 1}, {us(200), us(500), 2}, {us(500), us(1000), 1}, {us(1000), us(2000), 1}}
	if diff := cmp.Diff(want, d.Histogram()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHistogramOfCenturies(t *testing.T) {
	var d Durations
	d.add(math.MaxInt64)
	if got := d.Histogram(); len(got) != 1 || got[0].Count != 1 {
		t.Errorf("%v", got)
	}
}

// TestManyDurations has so many that quantiles come from the buckets.
func TestManyDurations(t *testing.T) {
	var d Durations
	const count = 4 * maxExact
	for i := range count {
		d.add(time.Duration(i) * time.Microsecond)
	}
	for _, q := range []float64{.01, .5, .95, .999, 1} {
		want := time.Duration(q*count) * time.Microsecond
		if got := d.Quantile(q); float64(got) < .999*float64(want-time.Microsecond) || float64(got) > float64(want)*(1+1./subBuckets) {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	var sum uint64
	for _, b := range d.Histogram() {
		sum += b.Count
	}
	if sum != count {
		t.Errorf("the histogram has %d durations", sum)
	}
}
