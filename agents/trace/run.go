package trace

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sonde-operator/sonde/agents/disk"
	"github.com/sonde-operator/sonde/agents/ending"
)

// The reader looks at the rings at a rhythm that follows the traffic: each time costs as much as the text of some hundred
// events, and a ring must have room for what comes until the next time, though that be many times as much.
const (
	shortest = time.Millisecond
	longest  = 50 * time.Millisecond
	// filled is how full the fullest ring is to be when it is looked at, of 1, and behind how full it is when the reader does
	// not sleep at all.
	filled = 1. / 16
	behind = 1. / 4
	// settle is how old an event must be to be written: those of other CPUs that are older are in their rings by then.
	settle = 2 * time.Millisecond
	// lineBuffer is how much is handed on at a time. With more the kernel takes larger pages for the file: fewer, but a virtual
	// machine may have to ask its host for them.
	lineBuffer = 128 << 10
)

// Run writes events until ctx ends, a limit is reached or lines cannot be written, and returns the final account. The
// cause of ctx decides the reason, as in ending.Of. It may be called once and leaves nothing open.
func (t *Trace) Run(ctx context.Context) Result {
	err := t.loop(ctx)
	openErr := t.findOpen()
	err = errors.Join(err, t.program.detach())
	// A program that was running when it was detached may still be writing its record.
	time.Sleep(10 * time.Millisecond)
	if err == nil {
		err = t.round(math.MaxUint64)
	}
	if err == nil {
		t.writeOpen()
		err = openErr
	}
	t.count()
	t.countCalls()
	t.lose()
	err = errors.Join(t.endErr, err, t.Close())
	reason := t.end
	switch {
	case disk.IsFull(err):
		reason = ending.DiskFull
	case err != nil:
		reason = ending.Error
	case reason == "":
		reason = ending.Of(ctx)
	}
	return Result{Reason: reason, Account: t.Account(), Err: err}
}

// Account returns the counts of this moment.
func (t *Trace) Account() Account {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.account
}

func (t *Trace) loop(ctx context.Context) error {
	pause, counted := longest, uint64(0)
	for ctx.Err() == nil && t.end == "" {
		fill, now := t.fill(), bootTime()
		if err := t.round(now - uint64(settle)); err != nil {
			return err
		}
		if now-counted >= uint64(longest) {
			t.count()
			counted = now
		}
		if pause = nextPause(pause, fill); pause > 0 {
			sleep(ctx, pause)
		}
	}
	return nil
}

// nextPause is how long the reader sleeps when after the last pause the fullest ring was so full. It becomes at most twice
// as long.
func nextPause(last time.Duration, fill float64) time.Duration {
	if fill > behind {
		return 0
	}
	next := float64(max(last, shortest)) * filled / max(fill, filled/2)
	return min(longest, max(shortest, time.Duration(next)))
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (t *Trace) fill() float64 {
	most := 0.0
	for _, r := range t.program.rings {
		most = max(most, r.fill())
	}
	return max(most, float64(t.rare.AvailableBytes())/float64(t.rare.BufferSize()))
}
