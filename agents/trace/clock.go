package trace

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock makes wall-clock time of the kernel's time since boot, as it was when the trace began: a clock that is set
// meanwhile puts no event before the one that it follows.
type bootClock struct{ offset int64 }

func (c *bootClock) set() {
	var wall unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME, &wall) == nil {
		c.offset = wall.Nano() - int64(bootTime())
	}
}

func (c *bootClock) at(ns uint64) time.Time { return time.Unix(0, c.offset+int64(ns)) }

func bootTime() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano())
}
