package ring

import (
	"slices"
	"time"
)

// A reader looks at its rings at a rhythm that follows what comes: each time costs as much as many records, and a ring must
// have room for what comes until the next time, though that be many times as much.
const (
	Shortest = time.Millisecond
	Longest  = 50 * time.Millisecond
	// Quiet is how long one sleeps where nothing comes whom programs wake with the first record.
	Quiet = 400 * time.Millisecond
	// filled is how full the fullest ring is to be when it is looked at, of 1, and behind how full it is when the reader does
	// not sleep at all.
	filled = 1. / 16
	behind = 1. / 4
	// Settle is how old a record must be for those of other CPUs that are older to be in their rings, where nothing is known of
	// them: longer is what a virtual CPU seldom stands still.
	Settle = 2 * time.Millisecond
	// settled is how old it must be where no CPU is busy with one: more than a mark takes to be seen by other CPUs, and than
	// clocks differ that are read in different ways.
	settled = 100 * time.Microsecond
	// looks is how often a CPU that is busy is looked at: a record takes a fraction of a microsecond.
	looks = 32
)

// Horizon is up to when all records are in their rings, for programs that mark their CPU busy: in nanoseconds of the clock, the
// one that they read.
func Horizon(rings []*Ring, clock func() uint64) uint64 {
	for range looks {
		now := clock() // before the look: whoever begins behind it reads a later time
		if !slices.ContainsFunc(rings, (*Ring).isBusy) {
			return now - uint64(settled)
		}
	}
	return clock() - uint64(Settle)
}

func (r *Ring) isBusy() bool { return r.busy.Load() != 0 }

// NextPause is how long a reader sleeps when after the last pause the fullest ring was so full, of 1. It becomes at most
// twice as long.
func NextPause(last time.Duration, fill float64) time.Duration {
	if fill > behind {
		return 0
	}
	next := float64(max(last, Shortest)) * filled / max(fill, filled/2)
	return min(Longest, max(Shortest, time.Duration(next)))
}

// Fullest is how full the fullest of the rings is, of 1.
func Fullest(rings []*Ring) (most float64) {
	for _, r := range rings {
		most = max(most, r.Fill())
	}
	return most
}
