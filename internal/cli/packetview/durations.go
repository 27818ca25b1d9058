package packetview

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"
)

const (
	// maxExact is how many durations are kept one by one. With more, quantiles come from a histogram, which takes as much memory: a page
	// has thousands of paths and names.
	maxExact = 1 << 11
	// subBuckets divide each power of two, so a quantile of the histogram is at most 1/subBuckets too large.
	subBuckets = 32
	subBits    = 5
)

// Durations sums up how long something took. The zero value is empty.
type Durations struct {
	Count              uint64
	Sum, Shortest, Max time.Duration

	exact   []time.Duration
	buckets []uint64
}

// add counts a duration. A negative one comes from a clock that was set back, and counts as zero.
func (d *Durations) add(took time.Duration) {
	took = max(0, took)
	if d.Count == 0 || took < d.Shortest {
		d.Shortest = took
	}
	d.Count++
	d.Sum += took
	d.Max = max(d.Max, took)
	if d.buckets == nil && len(d.exact) < maxExact {
		d.exact = append(d.exact, took)
		return
	}
	if d.buckets == nil {
		d.buckets = make([]uint64, 64*subBuckets)
		for _, one := range d.exact {
			d.buckets[bucketOf(one)]++
		}
		d.exact = nil
	}
	d.buckets[bucketOf(took)]++
}

// bucketOf returns the index of the bucket of a duration: its highest bits.
func bucketOf(took time.Duration) int {
	n := uint64(took)
	shift := max(0, bits.Len64(n)-subBits-1)
	return shift*subBuckets + int(n>>shift)
}

// bucketEnd returns the longest duration of a bucket.
func bucketEnd(bucket int) time.Duration {
	if bucket < 2*subBuckets {
		return time.Duration(bucket)
	}
	shift := bucket/subBuckets - 1
	return time.Duration((uint64(bucket%subBuckets+subBuckets)+1)<<shift - 1)
}

// Quantile returns the duration that the share q of all durations does not exceed (nearest rank); zero without any.
func (d *Durations) Quantile(q float64) time.Duration {
	if d.Count == 0 {
		return 0
	}
	rank := max(1, uint64(q*float64(d.Count)+0.9999999))
	if d.buckets == nil {
		slices.Sort(d.exact)
		return d.exact[min(rank, d.Count)-1]
	}
	var sum uint64
	for i, n := range d.buckets {
		if sum += n; sum >= rank {
			return min(d.Max, bucketEnd(i))
		}
	}
	return d.Max
}

// Mean of all durations; zero without any.
func (d *Durations) Mean() time.Duration {
	if d.Count == 0 {
		return 0
	}
	return d.Sum / time.Duration(d.Count)
}

// Bucket is a bar of a histogram.
type Bucket struct {
	// From is included, Below is not.
	From, Below time.Duration
	Count       uint64
}

// Histogram returns buckets whose bounds are 1, 2 and 5 times powers of ten, from the shortest to the longest duration.
func (d *Durations) Histogram() []Bucket {
	if d.Count == 0 {
		return nil
	}
	all := bounds(d.Shortest, d.Max)
	count := func(one time.Duration, n uint64) {
		i, found := slices.BinarySearchFunc(all, one, func(b Bucket, one time.Duration) int { return cmp.Compare(b.From, one) })
		if !found {
			i--
		}
		all[max(0, i)].Count += n
	}
	if d.buckets == nil {
		for _, one := range d.exact {
			count(one, 1)
		}
		return all
	}
	for i, n := range d.buckets {
		if n > 0 {
			count(min(d.Max, bucketEnd(i)), n)
		}
	}
	return all
}

// bounds returns empty buckets that cover a range.
func bounds(shortest, longest time.Duration) []Bucket {
	var all []Bucket
	from := time.Duration(0)
	power := int64(1)
	for range 19 { // 5 * 10^18 is the last bound that fits
		for _, n := range []int64{1, 2, 5} {
			below := time.Duration(n * power)
			if below > shortest && from <= longest {
				all = append(all, Bucket{From: from, Below: below})
			}
			from = below
		}
		power *= 10
	}
	if from <= longest { // centuries
		all = append(all, Bucket{From: from, Below: math.MaxInt64})
	}
	return all
}
