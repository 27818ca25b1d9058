package ring

import (
	"slices"
	"time"
)

// A reader polls its rings at an interval that follows the traffic. Each poll costs as much as many records, and a ring must
// hold what arrives until the next poll, even if the rate grows many times meanwhile.
const (
	MinInterval = time.Millisecond
	MaxInterval = 50 * time.Millisecond
	// QuietInterval is for a reader of programs that send no records and wake it at the first one.
	QuietInterval = 400 * time.Millisecond
	// targetFill is how full the fullest ring should be at a poll, of 1. Beyond maxFill the reader does not sleep.
	targetFill = 1. / 16
	maxFill    = 1. / 4
	// MaxDelay is how old a record must be so that older ones of other CPUs are in their rings, if nothing is known of those
	// CPUs. A virtual CPU is seldom stopped for longer.
	MaxDelay = 2 * time.Millisecond
	// idleDelay is how old a record must be if no CPU is busy with one: longer than a busy mark takes to become visible to
	// other CPUs, and than clocks differ that are read in different ways.
	idleDelay = 100 * time.Microsecond
	// busyChecks is how often Horizon checks for busy CPUs: writing a record takes a fraction of a microsecond.
	busyChecks = 32
)

// Horizon is the time up to which all records are in their rings, for programs that mark their CPU busy. It is in
// nanoseconds of clock, which must be the programs' clock.
func Horizon(rings []*Ring, clock func() uint64) uint64 {
	for range busyChecks {
		now := clock() // before the check: a program that begins after it reads a later time
		if !slices.ContainsFunc(rings, (*Ring).isBusy) {
			return now - uint64(idleDelay)
		}
	}
	return clock() - uint64(MaxDelay)
}

func (r *Ring) isBusy() bool { return r.busy.Load() != 0 }

// NextInterval is how long to sleep if the fullest ring was filled to fill, of 1, after the last interval. It is at most
// twice as long.
func NextInterval(last time.Duration, fill float64) time.Duration {
	if fill > maxFill {
		return 0
	}
	next := float64(max(last, MinInterval)) * targetFill / max(fill, targetFill/2)
	return min(MaxInterval, max(MinInterval, time.Duration(next)))
}

// Fullest is how full the fullest of the rings is, of 1.
func Fullest(rings []*Ring) (most float64) {
	for _, r := range rings {
		most = max(most, r.Fill())
	}
	return most
}
