package results

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Drain lets running downloads finish before the manager ends. NewDrain returns one.
type Drain struct {
	settle, limit time.Duration
	clock         clock.WithTicker

	mu   sync.Mutex
	busy int
	idle chan struct{} // closed while there are no downloads
}

// NewDrain returns a Drain. After the signal to end, the process runs for settle, until the cluster sends it no more
// requests, and then until the downloads have ended. It ends when limit, settle included, has passed since the signal.
func NewDrain(settle, limit time.Duration, clk clock.WithTicker) *Drain {
	d := &Drain{settle: settle, limit: limit, clock: clk, idle: make(chan struct{})}
	close(d.idle)
	return d
}

// Enter counts a download until its leave is called.
func (d *Drain) Enter() (leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy == 0 {
		d.idle = make(chan struct{})
	}
	d.busy++
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.busy--; d.busy == 0 {
			close(d.idle)
		}
	})
}

// Context ends when the process may end: after signal and the downloads.
func (d *Drain) Context(signal context.Context) context.Context {
	ctx, cancel := context.WithCancel(context.WithoutCancel(signal))
	go func() {
		defer cancel()
		<-signal.Done()
		end := d.clock.After(d.limit)
		<-d.clock.After(d.settle)
		select {
		case <-end:
		case <-d.noDownloads():
		}
	}()
	return ctx
}

// noDownloads returns a channel that is closed when the downloads have ended.
func (d *Drain) noDownloads() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.idle
}
