package trace

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/agents/node/iterator"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// Run writes events until ctx ends, a limit is reached or events cannot be written, and returns the final account. The
// cause of ctx decides the reason, as in recording.ReasonOf. It may be called once, and closes the trace.
func (t *Trace) Run(ctx context.Context) Result {
	err := t.loop(ctx)
	openErr := t.findOpenConnections()
	err = errors.Join(err, t.program.Detach())
	ring.AwaitPrograms() // one that was running when it was detached may still be writing its record
	if err == nil {
		err = t.merge(math.MaxUint64)
	}
	if err == nil {
		t.writeOpen()
		err = openErr
	}
	t.out.Deliver(true)
	t.count()
	t.countCalls()
	t.out.Close(t.held.drop())
	err = errors.Join(t.out.Err(), err, t.Close())
	reason := t.out.End()
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

// Account returns the current counts.
func (t *Trace) Account() Account {
	written := t.out.Counts()
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.lost
	a.Written, a.LostWriter, a.BeyondLimit = written.Written, written.Lost, written.BeyondLimit
	return a
}

func (t *Trace) loop(ctx context.Context) error {
	pause, counted := ring.MaxInterval, uint64(0)
	for ctx.Err() == nil && t.out.End() == "" {
		fill, now := max(t.program.Fill(), t.rare.Fill()), kernel.BootTime()
		if err := t.merge(now - uint64(ring.MaxDelay)); err != nil {
			return err
		}
		if now-counted >= uint64(ring.MaxInterval) {
			t.out.Deliver(false) // so that readers of the growing file see them
			t.count()
			counted = now
		}
		if pause = ring.NextInterval(pause, fill); pause > 0 {
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

// findOpenConnections finds the connections that are still open. If there was no time to find all, or no room for all, one
// counts as lost.
func (t *Trace) findOpenConnections() error {
	if !t.cfg.network() || t.out.End() != "" {
		return nil
	}
	found, err := t.program.Sockets(t.cfg.FileScan, decode.IsConnection)
	t.decoder.AddOpenConnections(found.All)
	slow := errors.Is(err, iterator.ErrSlow)
	if slow || found.More {
		t.unclosed = 1
	}
	if slow {
		return nil
	}
	return err
}

// writeOpen writes the connections and the operations of io_urings that have not ended when the trace ends.
func (t *Trace) writeOpen() {
	now := kernel.BootTime()
	for head, r := range t.decoder.Unfinished(now) {
		if state := t.containers.decisionOf(head.Cgroup); state != excluded {
			t.put(head, nil, r, state)
		}
	}
	for _, r := range t.decoder.StillOpen(now) {
		t.write(&r)
	}
	t.release(math.MaxUint64)
	t.out.Flush()
}
