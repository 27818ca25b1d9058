package follow

import (
	"container/heap"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// queued is a packet that waits.
type queued struct {
	pcapng.Packet

	seq uint64 // order of arrival
}

// arrival says when a packet came, and which time it has.
type arrival struct {
	at   time.Time
	time uint64
	size int
}

// queue holds packets by their time, and remembers the order in which they came.
type queue struct {
	packets  packets
	arrivals []arrival
	bytes    int
	seq      uint64
	until    uint64 // packets up to this time may leave
}

// push copies a packet into the queue.
func (q *queue) push(p *pcapng.Packet, now time.Time) {
	c := *p
	c.Data = append([]byte(nil), p.Data...)
	heap.Push(&q.packets, &queued{c, q.seq})
	q.arrivals = append(q.arrivals, arrival{now, p.Time, len(c.Data)})
	q.seq, q.bytes = q.seq+1, q.bytes+len(c.Data)
}

// advance lets packets leave up to the latest time of those that came before a moment. If more than most bytes wait, the oldest leave
// early; at the end all do.
func (q *queue) advance(before time.Time, most int, all bool) {
	if all {
		q.until = ^uint64(0)
	}
	waiting, n := q.bytes, 0
	for _, a := range q.arrivals {
		if a.at.After(before) && waiting <= most {
			break
		}
		q.until = max(q.until, a.time)
		waiting -= a.size
		n++
	}
	q.arrivals = q.arrivals[n:]
}

// leads reports whether the first packet may leave.
func (q *queue) leads() bool { return len(q.packets) > 0 && q.packets[0].Time <= q.until }

func (q *queue) pop() *queued {
	p := heap.Pop(&q.packets).(*queued) //nolint:forcetypeassert // nothing else is pushed
	q.bytes -= len(p.Data)
	return p
}

// packets implements heap.Interface.
type packets []*queued

func (h packets) Len() int { return len(h) }
func (h packets) Less(i, j int) bool {
	if h[i].Time != h[j].Time {
		return h[i].Time < h[j].Time
	}
	return h[i].seq < h[j].seq
}
func (h packets) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *packets) Push(x any) { *h = append(*h, x.(*queued)) } //nolint:forcetypeassert // only queue pushes

// Pop implements heap.Interface.
func (h *packets) Pop() any {
	old := *h
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return p
}
