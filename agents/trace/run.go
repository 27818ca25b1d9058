package trace

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sonde-operator/sonde/agents/disk"
	"github.com/sonde-operator/sonde/agents/ending"
)

// The reader looks at the rings at a rhythm that follows the traffic.
const (
	shortest = time.Millisecond
	longest  = 50 * time.Millisecond
	// settle is how old an event must be to be written: those of other CPUs that are older are in their rings by then.
	settle = 2 * time.Millisecond
	// lineBuffer is how much text is handed on at a time.
	lineBuffer = 64 << 10
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
	pause := longest
	for ctx.Err() == nil && t.end == "" {
		fill := t.fill()
		if err := t.round(bootTime() - uint64(settle)); err != nil {
			return err
		}
		switch {
		case fill > 0.1:
			pause = 0
		case fill > 0.01:
			pause = max(shortest, pause/2)
		default:
			pause = min(longest, max(shortest, pause*2))
		}
		t.count()
		if pause > 0 {
			sleep(ctx, pause)
		}
	}
	return nil
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
