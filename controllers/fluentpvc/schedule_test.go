package fluentpvc

import (
	"testing"

	"github.com/sonde-operator/sonde/test/memapi"
)

// TestSchedules runs the controller through random schedules of faults.
func TestSchedules(t *testing.T) {
	memapi.Schedules(t, "fluentpvc", func(t *testing.T, seed uint64) *memapi.Record {
		t.Helper()
		s := newSchedule(t, seed)
		s.random()
		return &s.Record
	})
}
