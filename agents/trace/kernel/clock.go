package kernel

import "golang.org/x/sys/unix"

// BootTime is the clock of records' times: nanoseconds since boot.
func BootTime() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano())
}
