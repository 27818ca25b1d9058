package capture

import (
	"testing"

	"github.com/sonde-operator/sonde/test/memapi"
)

// TestSchedules runs the controllers through random schedules of faults.
func TestSchedules(t *testing.T) { memapi.Schedules(t, "capture", runSchedule) }

func runSchedule(t *testing.T, seed uint64) *memapi.Record {
	t.Helper()
	s := newSchedule(t, seed)
	s.random()
	return &s.Record
}
