package capture

import (
	"flag"
	"fmt"
	"strings"
	"testing"
)

// Number of the schedules, and the seed of the first. Repeat a failing schedule with
//
//	go test ./controllers/capture -run TestSchedules -args -schedules 1 -seed SEED
var (
	schedules    = flag.Int("schedules", 32, "how many random schedules TestSchedules runs")
	scheduleSeed = flag.Uint64("seed", 1, "seed of the first schedule; each following one has the next")
)

// TestSchedules runs the controllers through random schedules of faults.
func TestSchedules(t *testing.T) {
	t.Logf("%d schedules from -seed %d", *schedules, *scheduleSeed)
	const workers = 8
	for w := range workers {
		t.Run(fmt.Sprintf("%d of %d", w+1, workers), func(t *testing.T) {
			t.Parallel()
			for i := w; i < *schedules; i += workers {
				runSchedule(t, *scheduleSeed+uint64(i))
			}
		})
	}
}

func runSchedule(t *testing.T, seed uint64) {
	t.Helper()
	s := newSchedule(t, seed)
	s.random()
	if s.broken != "" {
		t.Errorf("seed %d: %s\n\nrepeat it with: go test ./controllers/capture -run TestSchedules -args -schedules 1 -seed %d\n\n%s", seed, s.broken, seed, strings.Join(s.lines, "\n"))
	}
}
