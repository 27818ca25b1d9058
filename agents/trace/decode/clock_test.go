package decode

import "testing"

// The probe has to wait between two readings of the clocks, once for the length of a CPU limit's period.
func TestClockOfAProbeThatWaits(t *testing.T) {
	const offset, microsecond, period = int64(1_700_000_000_000_000_000), int64(1_000), int64(100_000_000)
	for name, waits := range map[string][]int64{
		"before the wall clock": {period, microsecond, microsecond},
		"after it":              {microsecond, period, microsecond},
		"each time":             {20 * microsecond, 20 * microsecond, 20 * microsecond},
	} {
		now, reads := int64(1_000_000), 0
		read := func() int64 {
			if reads > 0 && reads <= len(waits) {
				now += waits[reads-1]
			} else {
				now += microsecond / 4
			}
			reads++
			return now
		}
		var c bootClock
		c.measure(func() int64 { return read() + offset }, func() uint64 { return uint64(read()) })
		if diff := c.offset - offset; diff < -20*microsecond || diff > 20*microsecond {
			t.Errorf("a wait %s: the time is wrong by %d ns", name, diff)
		}
	}
}
