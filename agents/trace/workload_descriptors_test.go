package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

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

// Descriptors of flipWorkload: those of its two files, and those that are one of them at a time.
const (
	flipOne, flipOther = 100, 101
	flipFirst, flips   = 200, 200
)

// flipWorkload has each of some descriptors be one of two files in turn, without end, and asks for its status each time before.
func flipWorkload() {
	for i, fd := range []int{flipOne, flipOther} {
		file := value(unix.Open(filepath.Join(os.Getenv(workloadDir), strconv.Itoa(i)), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600))
		must(unix.Dup3(file, fd, 0))
	}
	for fd := range flips {
		must(unix.Dup3(flipOne, flipFirst+fd, 0))
	}
	fmt.Println("ready")
	for to := flipOther; ; to = flipOne + flipOther - to {
		for fd := range flips {
			var st unix.Stat_t
			must(unix.Fstat(flipFirst+fd, &st))
			must(unix.Dup3(to, flipFirst+fd, 0))
			for began := time.Now(); time.Since(began) < 20*time.Microsecond; { // a sleep would last longer
				runtime.Gosched()
			}
		}
	}
}
