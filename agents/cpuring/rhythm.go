package cpuring

import "time"

// A reader looks at its rings at a rhythm that follows what comes: each time costs as much as many records, and a ring must
// have room for what comes until the next time, though that be many times as much.
const (
	Shortest = time.Millisecond
	Longest  = 50 * time.Millisecond
	// filled is how full the fullest ring is to be when it is looked at, of 1, and behind how full it is when the reader does
	// not sleep at all.
	filled = 1. / 16
	behind = 1. / 4
	// Settle is how old a record must be for those of other CPUs that are older to be in their rings.
	Settle = 2 * time.Millisecond
)

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
