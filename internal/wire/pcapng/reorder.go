package pcapng

// entry is a buffered packet.
type entry struct {
	Packet
	seq uint64 // order of reading, for packets with the same time
}

func (e *entry) before(o *entry) bool {
	if e.Time != o.Time {
		return e.Time < o.Time
	}
	return e.seq < o.seq
}

// reorder is a heap of packets by time. It reuses the memory of packets that left it.
type reorder struct {
	heap  []*entry
	free  []*entry
	bytes int
	seq   uint64
}

// push copies a packet into the heap.
func (q *reorder) push(p *Packet) {
	e := &entry{}
	if n := len(q.free); n > 0 {
		e, q.free = q.free[n-1], q.free[:n-1]
	}
	e.Data = append(e.Data[:0], p.Data...)
	data := e.Data
	e.Packet, e.seq = *p, q.seq
	e.Data = data
	q.seq++
	q.bytes += len(e.Data)
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !q.heap[i].before(q.heap[parent]) {
			break
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

// pop removes the earliest packet. The caller returns its memory by recycle.
func (q *reorder) pop() *entry {
	e := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap[last] = nil
	q.heap = q.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && q.heap[child+1].before(q.heap[child]) {
			child++
		}
		if !q.heap[child].before(q.heap[i]) {
			break
		}
		q.heap[i], q.heap[child] = q.heap[child], q.heap[i]
		i = child
	}
	q.bytes -= len(e.Data)
	return e
}

func (q *reorder) recycle(e *entry) {
	const keep = 64 << 10 // do not keep the memory of rare large packets
	if cap(e.Data) <= keep {
		q.free = append(q.free, e)
	}
}
