package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"
)

// maxQueued bounds the events that were read from the ring and are not due, in bytes. Processes can start programs while an earlier page
// fault is awaited. Beyond it events stay in the ring, which counts those that find no room.
const maxQueued = 8 << 20

// RareRing is the ring that all CPUs write rare events to: all but system calls and page faults.
type RareRing struct {
	reader *ringbuf.Reader
	queue  []ringbuf.Record // read from the ring, sorted by time
	next   int              // index in queue
	bytes  int              // of the events from next on
	more   bool             // the queue was full: the ring has events that follow on those in it
}

// RareRing opens the program's ring of rare events.
func (p *Program) RareRing() (*RareRing, error) {
	reader, err := ringbuf.NewReader(p.Objects.Maps[traceMapRare])
	if err != nil {
		return nil, fmt.Errorf("open the ring of rare events: %w", err)
	}
	return &RareRing{reader: reader}, nil
}

// Fill is how full the ring is, from 0 to 1.
func (r *RareRing) Fill() float64 {
	return float64(r.reader.AvailableBytes()) / float64(r.reader.BufferSize())
}

// Read takes the events that are in the ring when it begins, without waiting. Processes may write more meanwhile, as fast as
// it reads: these are for the next Read. Next reads those that the queue has no room for.
func (r *RareRing) Read() error {
	left := r.reader.AvailableBytes()
	r.more = false
	if left == 0 {
		return nil // a Read that finds nothing takes several system calls
	}
	r.queue = slices.Delete(r.queue, 0, r.next)
	r.next = 0
	r.reader.SetDeadline(time.Unix(1, 0)) // do not wait
	for left > 0 && r.bytes < maxQueued {
		rec, err := r.reader.Read()
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			left = 0
			break
		}
		if err != nil {
			return fmt.Errorf("read rare events: %w", err)
		}
		r.queue = append(r.queue, rec)
		r.bytes += len(rec.RawSample)
		left -= len(rec.RawSample)
	}
	r.more = left > 0
	slices.SortStableFunc(r.queue, func(a, b ringbuf.Record) int { return cmp.Compare(sampleTime(a), sampleTime(b)) })
	return nil
}

// Time returns the time of the next event, in nanoseconds since boot; false if none was read.
func (r *RareRing) Time() (uint64, bool) {
	if r.next == len(r.queue) {
		return 0, false
	}
	return sampleTime(r.queue[r.next]), true
}

// Next parses the next event into rec and removes it from the queue. If it was the last one of a full queue, Next reads those that follow
// on it: without them, Time would have the caller take later events of other rings first.
func (r *RareRing) Next(rec *Record) error {
	*rec = Record{}
	sample := r.queue[r.next].RawSample
	if !rec.Parse(sample) {
		return ErrMalformed
	}
	r.bytes -= len(sample)
	r.next++
	if r.more && r.next == len(r.queue) {
		return r.Read()
	}
	return nil
}

// Close releases the ring.
func (r *RareRing) Close() error { return r.reader.Close() }

func sampleTime(r ringbuf.Record) uint64 {
	const at = unsafe.Offsetof(Head{}.Time)
	if len(r.RawSample) < HeadLen {
		return 0
	}
	return binary.NativeEndian.Uint64(r.RawSample[at:])
}
