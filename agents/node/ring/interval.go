package ring

import (
	"slices"
	"time"
)

// A reader polls its rings at an interval that follows the traffic. Each poll costs as much as many records, and a ring
// must hold the records until the next poll, even if the rate grows many times meanwhile.
const (
	MinInterval = time.Millisecond
	MaxInterval = 50 * time.Millisecond
	// QuietInterval is for a reader of programs that send no records and wake it at the first one.
	QuietInterval = 400 * time.Millisecond
	// targetFill is how full the fullest ring should be at a poll: 1 is full. Beyond maxFill the reader does not sleep.
	targetFill = 1. / 16
	maxFill    = 1. / 4
	// MaxDelay is the age of a record at which the older records of all CPUs are taken to be in their rings, if some
	// CPU may be busy with one. A virtual CPU is seldom stopped for longer.
	MaxDelay = 2 * time.Millisecond
	// idleDelay replaces MaxDelay while no CPU is busy with a record. It exceeds the time until a busy mark is visible
	// to other CPUs, and the difference between two ways to read the clock.
	idleDelay = 100 * time.Microsecond
	// busyChecks is how often Horizon checks for busy CPUs: writing a record takes a fraction of a microsecond.
	busyChecks = 32
)

// Horizon returns the time up to which all records are in their rings, in nanoseconds. The programs must mark their CPU
// busy, and clock must be the clock that they read.
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

// NextInterval returns how long to sleep after an interval in which the fullest ring was filled to fill, from 0 to 1.
// The result is at most twice the last interval.
func NextInterval(last time.Duration, fill float64) time.Duration {
	if fill > maxFill {
		return 0
	}
	next := float64(max(last, MinInterval)) * targetFill / max(fill, targetFill/2)
	return min(MaxInterval, max(MinInterval, time.Duration(next)))
}

// Fullest returns how full the fullest ring is, from 0 to 1.
func Fullest(rings []*Ring) (most float64) {
	for _, r := range rings {
		most = max(most, r.Fill())
	}
	return most
}
