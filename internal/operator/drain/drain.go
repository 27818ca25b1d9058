// Package drain lets a process end without cutting off what it is serving: between the signal and the
// end it goes on for a short while, in which nobody sends it anything new.
package drain

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Drain counts what must not be cut off. Make one by New.
type Drain struct {
	quiet, most time.Duration
	clock       clock.WithTicker

	mu   sync.Mutex
	busy int
	free chan struct{} // closed while nothing is being served
}

// New returns a Drain. The process goes on for quiet after the signal, so that the cluster learns that it
// is going before it is gone, and until nothing is being served any more, at the longest until most has passed since
// the signal: quiet is part of it.
func New(quiet, most time.Duration, clk clock.WithTicker) *Drain {
	d := &Drain{quiet: quiet, most: most, clock: clk, free: make(chan struct{})}
	close(d.free)
	return d
}

// Enter counts something that is being served; the caller calls what it gets when it is over. A nil Drain
// counts nothing.
func (d *Drain) Enter() (leave func()) {
	if d == nil {
		return func() {}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy == 0 {
		d.free = make(chan struct{})
	}
	d.busy++
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.busy--; d.busy == 0 {
			close(d.free)
		}
	})
}

// Context ends when the process may: after signal has ended, and what is being served after it.
func (d *Drain) Context(signal context.Context) context.Context {
	ctx, cancel := context.WithCancel(context.WithoutCancel(signal))
	go func() {
		defer cancel()
		<-signal.Done()
		end := d.clock.After(d.most)
		<-d.clock.After(d.quiet)
		select {
		case <-end:
		case <-d.idle():
		}
	}()
	return ctx
}

// idle is closed when nothing is being served.
func (d *Drain) idle() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free
}
