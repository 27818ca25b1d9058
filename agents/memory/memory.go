// Package memory lets a process that relays bytes give some of them up before the kernel kills it for its memory.
package memory

import (
	"io"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// CheckInterval is how often to ask Short. In this time a link of 1 Gbit/s brings 32 MB.
const CheckInterval = 250 * time.Millisecond

// Short reports whether what the last garbage collection found in use is more than six tenths of GOMEMLIMIT. Call runtime.GC after
// memory was given up, so that the next call knows of it. Without GOMEMLIMIT memory is never short.
func Short() bool {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return false
	}
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()+samples[1].Value.Uint64() > uint64(limit)/10*6
}

// Flow is one direction of bytes that are relayed. Bytes that its reader does not take pile up in front of it. One goroutine reads;
// the other methods may be called by others.
type Flow struct {
	reading atomic.Bool
	// left is when the last read ended. full is when the first one ended of those in a row that filled their buffers. In ns since
	// 1970; 0 if there was none.
	left, full, moved atomic.Int64
}

// Read reads from the source of the flow.
func (f *Flow) Read(from io.Reader, b []byte) (int, error) {
	f.reading.Store(true)
	n, err := from.Read(b)
	now := time.Now().UnixNano()
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

// Waits reports whether bytes may have piled up for a time: the source has had more than was read, or nothing was read.
func (f *Flow) Waits(now time.Time, d time.Duration) bool {
	if f.reading.Load() {
		return false
	}
	since := f.full.Load()
	if since == 0 {
		since = f.left.Load()
	}
	return since != 0 && now.Sub(time.Unix(0, since)) > d
}

// Moved returns the bytes since its last call.
func (f *Flow) Moved() int64 { return f.moved.Swap(0) }
