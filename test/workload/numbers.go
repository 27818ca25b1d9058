package main

import (
	"flag"
	"fmt"
	"strconv"
	"syscall"
	"time"
)

// numbers opens files of numbered names, which do not exist, at a steady rate until it is killed. The numbers show
// which calls a trace misses. The first number in a name identifies the run.
func numbers(f *flag.FlagSet, args []string) error {
	path := f.String("path", "/dev/shm/number", "path of the files, without their numbers")
	rate := f.Int("rate", 200, "calls a second")
	if err := f.Parse(args); err != nil {
		return err
	}
	start := time.Now()
	base := *path + "-" + strconv.FormatInt(start.UnixNano(), 10) + "-"
	for n := uint64(0); ; n++ {
		time.Sleep(time.Until(start.Add(time.Duration(n) * time.Second / time.Duration(*rate)))) //nolint:gosec // overflows after years
		name := base + strconv.FormatUint(n, 10)
		if fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
			return fmt.Errorf("open %s: got descriptor %d, want no such file", name, fd)
		}
	}
}
