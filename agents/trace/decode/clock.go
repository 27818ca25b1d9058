package decode

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// bootClock converts the kernel's time since boot to wall-clock time, by their difference when the trace began: setting the
// clock during a trace does not reorder its events.
type bootClock struct{ offset int64 }

func (c *bootClock) set() {
	var wall unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME, &wall) == nil {
		c.offset = wall.Nano() - int64(kernel.BootTime())
	}
}

func (c *bootClock) at(ns uint64) time.Time { return time.Unix(0, c.offset+int64(ns)) }
