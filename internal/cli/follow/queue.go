package follow

import (
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// arrivalSpan is how exactly the arrival of packets is kept.
const arrivalSpan = 10 * time.Millisecond

// arrival says until when some packets came, the latest of their times, and the memory that they take, in bytes.
type arrival struct {
	at   time.Time
	time uint64
	size int
}

// queue sorts packets by their time, and remembers when they came.
type queue struct {
	pcapng.Queue

	arrivals []arrival
	until    uint64 // packets up to this time may leave, because they have waited
	complete uint64 // packets up to this time may leave, because no earlier ones come
}

// push copies a packet's block into the queue.
func (q *queue) push(at uint64, block []byte, now time.Time) {
	size := q.Push(at, block)
	if n := len(q.arrivals); n > 0 {
		if last := &q.arrivals[n-1]; now.Sub(last.at) < arrivalSpan {
			last.time, last.size = max(last.time, at), last.size+size
			return
		}
	}
	q.arrivals = append(q.arrivals, arrival{now, at, size})
}

// advance lets packets leave up to the latest time of those that came before a moment; at the end all do.
func (q *queue) advance(before time.Time, all bool) {
	if all {
		q.until = ^uint64(0)
	}
	for len(q.arrivals) > 0 && !q.arrivals[0].at.After(before) {
		q.release()
	}
}

// shrink lets the oldest packets leave early, by spans of their arrival, until most bytes are left.
func (q *queue) shrink(most int) {
	for waiting := q.Bytes(); waiting > most && len(q.arrivals) > 0; {
		waiting -= q.release()
	}
}

// release lets the packets leave that came first, and returns their memory.
func (q *queue) release() int {
	a := q.arrivals[0]
	q.until = max(q.until, a.time)
	q.arrivals = append(q.arrivals[:0], q.arrivals[1:]...)
	return a.size
}

// leads reports whether the first packet may leave.
func (q *queue) leads() bool {
	first, ok := q.First()
	return ok && first <= max(q.until, q.complete)
}
