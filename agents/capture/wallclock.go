package capture

import "golang.org/x/sys/unix"

// wallClock makes time since 1970 of the kernel's monotonic clock, which programs can read on every kernel. The two differ
// by a number that changes only when somebody sets the clock: whoever makes it go faster or slower does so with both.
type wallClock struct{ offset uint64 }

// jitter is how far two measurements of the offset may differ when nobody has set the clock, in nanoseconds: in between
// another process may run.
const jitter = 20_000

// set measures the offset, and reports whether it is another than before.
func (c *wallClock) set() bool {
	least := uint64(1 << 63)
	offset := c.offset
	for range 8 {
		before := now(unix.CLOCK_MONOTONIC)
		wall := now(unix.CLOCK_REALTIME)
		after := now(unix.CLOCK_MONOTONIC)
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
