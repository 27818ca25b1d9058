package decode

import (
	"time"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// bootClock converts the kernel's time since boot to wall-clock time, by their difference when the trace began: setting the
// clock during a trace does not reorder its events.
type bootClock struct{ offset int64 }

func (c *bootClock) set() {
	c.measure(func() int64 { return time.Now().UnixNano() }, kernel.BootTime)
}

// Attempts of measure, and how many nanoseconds one takes that nothing has interrupted.
const (
	clockAttempts = 8
	clockAtOnce   = 1000
)

// measure reads both clocks. The probe may have to wait between two readings: the shortest attempt counts.
func (c *bootClock) measure(wall func() int64, boot func() uint64) {
	least := int64(-1)
	for range clockAttempts {
		before := int64(boot())
		now := wall()
		took := int64(boot()) - before
		if least < 0 || took < least {
			least, c.offset = took, now-before-took/2
		}
		if least < clockAtOnce {
			return
		}
	}
}

func (c *bootClock) at(ns uint64) time.Time { return time.Unix(0, c.offset+int64(ns)) }
