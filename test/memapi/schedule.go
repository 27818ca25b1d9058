package memapi

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// Number of the schedules, and the seed of the first. Repeat a failing schedule with
//
//	go test ./controllers/FAMILY -run TestSchedules -args -schedules 1 -seed SEED
var (
	schedules = flag.Int("schedules", 32, "how many random schedules TestSchedules runs")
	firstSeed = flag.Uint64("seed", 1, "seed of the first schedule; each following one has the next")
)

// mostSchedules is how many schedules may pass before one finds a bug that was made on purpose.
const mostSchedules = 400

// Record is the trace of a schedule, and the first invariant that it broke.
type Record struct {
	Clock clock.PassiveClock
	Start time.Time
	// Steps of the schedule so far, and the Depth of pauses within pauses.
	Steps, Depth int
	Lines        []string
	// Broken is empty if all invariants hold.
	Broken string
}

// Trace adds a line.
func (r *Record) Trace(format string, args ...any) {
	r.Lines = append(r.Lines, fmt.Sprintf("%4d %9s %s%s", r.Steps, r.Clock.Since(r.Start).Truncate(time.Millisecond), strings.Repeat("  ", r.Depth), fmt.Sprintf(format, args...)))
}

// Fail records the first broken invariant.
func (r *Record) Fail(format string, args ...any) {
	r.Trace("BROKEN: "+format, args...)
	if r.Broken == "" {
		r.Broken = fmt.Sprintf(format, args...)
	}
}

// Meanwhile takes other steps while a request of a manager is on its way.
func (r *Record) Meanwhile(random *rand.Rand, manager fmt.Stringer, step func()) {
	if r.Depth >= 2 {
		return
	}
	r.Trace("meanwhile, as %s waits:", manager)
	r.Depth++
	for range 1 + random.IntN(25) {
		step()
	}
	r.Depth--
}

// Schedules runs the random schedules of a family of controllers.
func Schedules(t *testing.T, family string, run func(t *testing.T, seed uint64) *Record) {
	t.Helper()
	t.Logf("%d schedules from -seed %d", *schedules, *firstSeed)
	const workers = 8
	for w := range workers {
		t.Run(fmt.Sprintf("%d of %d", w+1, workers), func(t *testing.T) {
			t.Parallel()
			for i := w; i < *schedules; i += workers {
				seed := *firstSeed + uint64(i)
				if r := run(t, seed); r.Broken != "" {
					t.Errorf("seed %d: %s\n\nrepeat it with: go test ./controllers/%s -run TestSchedules -args -schedules 1 -seed %d\n\n%s",
						seed, r.Broken, family, seed, strings.Join(r.Lines, "\n"))
				}
			}
		})
	}
}

// WantBug runs schedules of a manager that was broken on purpose, until one breaks the invariant whose text contains want.
func WantBug(t *testing.T, want string, from uint64, run func(t *testing.T, seed uint64) *Record) {
	t.Helper()
	for seed := max(from, 1); seed < max(from, 1)+mostSchedules; seed++ {
		if r := run(t, seed); r.Broken != "" && strings.Contains(r.Broken, want) {
			t.Logf("seed %d: %s", seed, r.Broken)
			return
		}
	}
	t.Errorf("%d schedules did not break the invariant", mostSchedules)
}

// RandomFault chooses a fault of a request. A write may also end the manager before or after, or make another one the leader.
func RandomFault(random *rand.Rand, write bool, crash, handOver func()) Fault {
	n := ReadFaults
	if write {
		n = len(Faults) + 3
	}
	switch i := random.IntN(n); {
	case i < len(Faults):
		return Faults[i]
	case i == len(Faults):
		return Fault{Before: crash}
	case i == len(Faults)+1:
		return Fault{After: crash}
	default:
		return Fault{Before: handOver}
	}
}
