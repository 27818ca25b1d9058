// Package memory lets a process that relays bytes give some of them up before the kernel kills it for its memory.
package memory

import (
	"cmp"
	"context"
	"io"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"time"
)

// CheckInterval is how often to ask for the Excess. In this time a link of 1 Gbit/s brings 32 MB.
const CheckInterval = 250 * time.Millisecond

// Check calls check each CheckInterval, until ctx ends.
func Check(ctx context.Context, check func(now time.Time)) {
	ticker := time.NewTicker(CheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			check(now)
		}
	}
}

// Excess returns the bytes by which what the last garbage collection found in use is more than seven tenths of GOMEMLIMIT. Memory is
// short if there are any. Call runtime.GC after memory was given up, so that the next call knows of it. Without GOMEMLIMIT there is no
// excess.
func Excess() int {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return 0
	}
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return max(0, int(samples[0].Value.Uint64()+samples[1].Value.Uint64())-int(limit/10*7))
}

// Flow is one direction of bytes that are relayed. Bytes that its reader does not take pile up in front of it. One goroutine reads;
// the other methods may be called by others.
type Flow struct {
	reading atomic.Bool
	// left is when the last read ended, or when the flow began. full is when the first one ended of those in a row that filled
	// their buffers. In ns since 1970; 0 if there was none.
	left, full, moved atomic.Int64
}

// Begin says that bytes may pile up from now on, also before the first Read.
func (f *Flow) Begin(now time.Time) { f.left.Store(now.UnixNano()) }

// Read reads from the source of the flow.
func (f *Flow) Read(from io.Reader, b []byte) (int, error) {
	f.reading.Store(true)
	n, err := from.Read(b)
	now := time.Now().UnixNano() //nolint:forbidigo // the bytes of a connection come in real time
	if err != nil {
		now = 0 // nothing more can pile up
	}
	f.left.Store(now)
	switch {
	case n < len(b) || err != nil: // the source is empty
		f.full.Store(0)
	case f.full.Load() == 0:
		f.full.Store(now)
	}
	f.moved.Add(int64(n))
	f.reading.Store(false)
	return n, err
}

// Waits returns for how long bytes may have piled up: the source has had more than was read, or nothing was read. It is 0 if they
// do not.
func (f *Flow) Waits(now time.Time) time.Duration {
	if f.reading.Load() {
		return 0
	}
	since := f.full.Load()
	if since == 0 {
		since = f.left.Load()
	}
	if since == 0 {
		return 0
	}
	return max(0, now.Sub(time.Unix(0, since)))
}

// Moved returns the bytes since its last call.
func (f *Flow) Moved() int64 { return f.moved.Swap(0) }

// Waiter is something whose end frees memory.
type Waiter[T any] struct {
	Of    T
	Holds int // bytes at most
	// Moved bytes since the last check, and how long it Waits.
	Moved int64
	Waits time.Duration
}

// Worst returns those that are to end to free some bytes: the ones that moved the least, and of these the ones that wait the longest.
func Worst[T any](all []Waiter[T], free int) []T {
	slices.SortFunc(all, func(a, b Waiter[T]) int { return cmp.Or(cmp.Compare(a.Moved, b.Moved), cmp.Compare(b.Waits, a.Waits)) })
	var worst []T
	for _, w := range all {
		if free <= 0 {
			break
		}
		free -= w.Holds
		worst = append(worst, w.Of)
	}
	return worst
}
