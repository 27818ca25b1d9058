package ring

import (
	"testing"
	"time"
)

// The reader sleeps longer, up to a bound, where less came than it had expected, and not at all when it is behind.
func TestNextPause(t *testing.T) {
	for name, tc := range map[string]struct {
		last time.Duration
		fill float64
		want time.Duration
	}{
		"as expected":           {8 * time.Millisecond, filled, 8 * time.Millisecond},
		"twice as much":         {8 * time.Millisecond, 2 * filled, 4 * time.Millisecond},
		"half as much":          {8 * time.Millisecond, filled / 2, 16 * time.Millisecond},
		"nothing":               {8 * time.Millisecond, 0, 16 * time.Millisecond},
		"nothing for long":      {Longest, 0, Longest},
		"much for a short time": {Shortest, 3 * filled, Shortest},
		"behind":                {Longest, 0.3, 0},
		"no more behind":        {0, filled, Shortest},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NextPause(tc.last, tc.fill); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// Records of a CPU that is busy for long may be older than what the others have; those of one that is only just busy are
// waited for.
func TestHorizon(t *testing.T) {
	const now = 1e18
	for name, tc := range map[string]struct {
		until int // which look finds the second CPU no longer busy
		want  time.Duration
	}{
		"idle":          {0, settled},
		"busy":          {3, settled},
		"busy for long": {looks + 1, Settle},
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
