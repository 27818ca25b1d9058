package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
)

// Made is the line that calls prints at its start and after each round: the true number of its reads and writes.
type Made struct {
	Calls int `json:"calls"` // including the write of this line
}

// calls makes a number of one-byte reads on several threads, as fast as it can, whenever it gets SIGUSR1. Nothing else
// in the process may read or write. It disables garbage collection and uses no timers, because the runtime reads and
// writes for both.
func calls(f *flag.FlagSet, args []string) error {
	count := f.Int("count", 100000, "reads of each thread per SIGUSR1")
	threads := f.Int("threads", 2, "number of threads that read at the same time")
	if err := f.Parse(args); err != nil {
		return err
	}
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(*threads) // otherwise the runtime reads its cgroup once a second to learn its CPU limit
	zero, err := syscall.Open("/dev/zero", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1, syscall.SIGTERM)
	for made := 0; ; made += *count * *threads {
		made++
		if err := printLine(Made{Calls: made}); err != nil {
			return err
		}
		if <-asked == syscall.SIGTERM {
			return nil
		}
		errs := make([]error, *threads)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = read(zero, *count) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
}

// read makes count reads and reports how many failed.
func read(fd, count int) error {
	b := make([]byte, 1)
	failed := 0
	for range count {
		if n, err := syscall.Pread(fd, b, 0); err != nil || n != 1 {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d reads failed", failed, count)
	}
	return nil
}

// printLine prints a line with a single write.
func printLine(m Made) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if n, err := syscall.Write(1, line); err != nil || n != len(line) {
		return fmt.Errorf("write: %d bytes, %w", n, err)
	}
	return nil
}
