package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress prints the steps, each line with the seconds since the start.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, start: time.Now()}
}

// step prints one line.
func (p *progress) step(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%7.1fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// during prints the result of say every interval until the returned stop is called, so that a long step is never
// silent.
func (p *progress) during(interval time.Duration, say func() string) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				p.step("%s", say())
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
