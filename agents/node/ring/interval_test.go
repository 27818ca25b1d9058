package ring

import (
	"testing"
	"time"
)

// The reader sleeps longer, up to a bound, after fewer records than expected, and not at all when it is late.
func TestNextInterval(t *testing.T) {
	for name, tc := range map[string]struct {
		last time.Duration
		fill float64
		want time.Duration
	}{
		"as expected":           {8 * time.Millisecond, targetFill, 8 * time.Millisecond},
		"twice as much":         {8 * time.Millisecond, 2 * targetFill, 4 * time.Millisecond},
		"half as much":          {8 * time.Millisecond, targetFill / 2, 16 * time.Millisecond},
		"nothing":               {8 * time.Millisecond, 0, 16 * time.Millisecond},
		"nothing for long":      {MaxInterval, 0, MaxInterval},
		"much for a short time": {MinInterval, 3 * targetFill, MinInterval},
		"late":                  {MaxInterval, 0.3, 0},
		"no longer late":        {0, targetFill, MinInterval},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NextInterval(tc.last, tc.fill); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// Horizon waits for a CPU that is busy for a moment. It does not wait for one that stays busy, whose records may be
// older.
func TestHorizon(t *testing.T) {
	const now = 1e18
	for name, tc := range map[string]struct {
		until int // the check that finds the second CPU idle
		want  time.Duration
	}{
		"idle":          {0, idleDelay},
		"busy":          {3, idleDelay},
		"busy for long": {busyChecks + 1, MaxDelay},
	} {
		t.Run(name, func(t *testing.T) {
			rings := []*Ring{InMemory(4096, 64, 0), InMemory(4096, 64, 0)}
			rings[1].busy.Store(1)
			looked := -1
			got := Horizon(rings, func() uint64 {
				if looked++; looked >= tc.until {
					rings[1].busy.Store(0)
				}
				return now
			})
			if want := uint64(now - tc.want); got != want {
				t.Errorf("%v before the present, want %v", time.Duration(now-got), tc.want)
			}
		})
	}
}
