package ring

import (
	"time"

	"golang.org/x/sys/unix"
)

// AwaitPrograms returns when every program that was running has ended, and with it the record that it was writing. Programs at tc and
// at tracepoints run in RCU read-side critical sections, which the system call waits for. To detach a program does not.
func AwaitPrograms() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		time.Sleep(100 * time.Millisecond) // the call does not exist with nohz_full; a program takes microseconds
	}
}
