package trace

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Descriptors of inheritWorkload. Go's own have lower numbers.
const closedByExec, keptByExec = 100, 101

// inheritWorkload opens a file by two descriptors, waits for a byte, and replaces itself with inherited.
func inheritWorkload() {
	fd := value(unix.Open(filepath.Join(os.Getenv(workloadDir), "kept"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600))
	must(unix.Dup3(fd, closedByExec, unix.O_CLOEXEC))
	must(unix.Dup3(fd, keptByExec, 0))
	fmt.Println("ready")
	_, _ = unix.Read(0, make([]byte, 1))
	must(os.Setenv(workloadEnv, "inherited"))
	must(unix.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// inherited asks for both descriptors.
func inherited() {
	var st unix.Stat_t
	_ = unix.Fstat(closedByExec, &st) // closed
	must(unix.Fstat(keptByExec, &st))
	os.Exit(0)
}
