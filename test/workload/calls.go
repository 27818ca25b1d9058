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

// Made is what calls prints, at its start and after each round: the truth about how often it has read and written.
type Made struct {
	Calls int `json:"calls"` // the one that prints this included
}

// calls reads a byte so often, on several threads, each time that it is asked to, as fast as it can; nothing else in the
// process reads or writes. The runtime does where it collects garbage or waits for a time: it does neither.
func calls(f *flag.FlagSet, args []string) error {
	count := f.Int("count", 100000, "reads of each thread, for each SIGUSR1")
	threads := f.Int("threads", 2, "how many read at the same time")
	if err := f.Parse(args); err != nil {
		return err
	}
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(*threads) // else the runtime reads its cgroup once a second, whether it may have more processors
	zero, err := syscall.Open("/dev/zero", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1, syscall.SIGTERM)
	for made := 0; ; made += *count * *threads {
		made++
		if err := tell(Made{Calls: made}); err != nil {
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

// read makes so many calls, whatever becomes of them.
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

// tell prints a line, by one call.
func tell(m Made) error {
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
