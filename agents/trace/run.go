package trace

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/agents/node/ring"
)

// lineBuffer is how much is handed on at a time.
const lineBuffer = 256 << 10

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
	t.deliver(true)
	t.count()
	t.countCalls()
	t.lose()
	err = errors.Join(t.endErr, err, t.Close())
	reason := t.end
	switch {
	case disk.IsFull(err):
		reason = recording.DiskFull
	case err != nil:
		reason = recording.Error
	case reason == "":
		reason = recording.ReasonOf(ctx)
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
	pause, counted := ring.Longest, uint64(0)
	for ctx.Err() == nil && t.end == "" {
		fill, now := t.fill(), bootTime()
		if err := t.round(now - uint64(ring.Settle)); err != nil {
			return err
		}
		if now-counted >= uint64(ring.Longest) {
			t.deliver(false) // for those who read the file meanwhile
			t.count()
			counted = now
		}
		if pause = ring.NextPause(pause, fill); pause > 0 {
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
	return max(ring.Fullest(t.program.mapped), float64(t.rare.AvailableBytes())/float64(t.rare.BufferSize()))
}
