package tc

import (
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
)

// wallClock converts CLOCK_MONOTONIC, which programs can read on every kernel, to time since 1970. The offset changes only
// when the clock is set: slewing changes the speed of both clocks alike.
type wallClock struct{ offset uint64 }

// jitter is how far two measurements of the offset may differ in nanoseconds although the clock was not set: another process
// may run in between.
const jitter = 20_000

// set measures the offset, and reports whether the clock was set.
func (c *wallClock) set() bool {
	least := uint64(1 << 63)
	offset := c.offset
	for range 8 {
		before := backend.Now(unix.CLOCK_MONOTONIC)
		wall := backend.Now(unix.CLOCK_REALTIME)
		after := backend.Now(unix.CLOCK_MONOTONIC)
		if after-before < least {
			least, offset = after-before, wall-before-(after-before)/2
		}
		if least < 1000 {
			break
		}
	}
	if diff := int64(offset - c.offset); diff > -jitter && diff < jitter {
		return false
	}
	c.offset = offset
	return true
}
