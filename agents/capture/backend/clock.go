package backend

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Interval is how often counters are read and pending packets are written while packets arrive.
const Interval = 100 * time.Millisecond

// CheckInterval is how often a capture checks which programs an interface has.
const CheckInterval = time.Second

// IsQuiet reports whether the last packet arrived so long ago that all packets are written. Both times are of
// CLOCK_MONOTONIC.
func IsQuiet(lastPacket, now uint64) bool { return now-lastPacket >= uint64(2*Interval) }

// Now reads a clock in nanoseconds. The call does not sleep, so the scheduler need not know of it.
func Now(clock int32) uint64 {
	var ts unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0 // possible only for a clock that does not exist
	}
	return uint64(ts.Nano())
}
