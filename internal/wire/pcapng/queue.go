package pcapng

// chunkLen is how many bytes of memory a Queue takes at once.
const chunkLen = 64 << 10

// Queue sorts blocks by time. Blocks of the same time leave in the order in which they came. It copies them into chunks of memory that it
// reuses, so that millions of waiting packets cost the garbage collector nothing. The zero value is an empty queue.
type Queue struct {
	heap    []queued
	chunks  []chunk
	current int   // index of the chunk that is filled
	free    []int // indexes of chunks without blocks
	bytes   int
	seq     uint64
}

// queued is a block in a chunk. It has no pointers, which the garbage collector would follow.
type queued struct {
	time, seq       uint64
	chunk, at, size int32
}

// queuedLen is the size of a queued in memory, in bytes.
const queuedLen = 32

// chunk is a piece of memory, and the number of blocks in it that have not left.
type chunk struct {
	data   []byte
	blocks int
}

func (b *queued) before(o *queued) bool {
	if b.time != o.time {
		return b.time < o.time
	}
	return b.seq < o.seq
}

// Len is the number of blocks.
func (q *Queue) Len() int { return len(q.heap) }

// Bytes is the memory that the blocks take.
func (q *Queue) Bytes() int { return q.bytes }

// Memory is what the queue holds, in bytes: with blocks that have left, but whose chunks have others that wait.
func (q *Queue) Memory() int { return max(q.bytes, (len(q.chunks)-len(q.free))*chunkLen) }

// First returns the earliest time; false if the queue is empty.
func (q *Queue) First() (time uint64, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].time, true
}

// Push copies a block into the queue, and returns the memory that it takes, in bytes.
func (q *Queue) Push(time uint64, block []byte) int {
	c := q.reserve(len(block))
	b := queued{time: time, seq: q.seq, chunk: int32(q.current), at: int32(len(c.data)), size: int32(len(block))}
	c.data = append(c.data, block...)
	c.blocks++
	q.seq++
	q.bytes += len(block) + queuedLen
	q.heap = append(q.heap, b)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !b.before(&q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = b
	return len(block) + queuedLen
}

// Pop removes the earliest block. The block is valid until the next Push. It panics if the queue is empty.
func (q *Queue) Pop() (time uint64, block []byte) {
	b := q.heap[0]
	last := len(q.heap) - 1
	moved := q.heap[last]
	q.heap = q.heap[:last]
	if last > 0 {
		q.sink(moved)
	}
	q.bytes -= int(b.size) + queuedLen
	c := &q.chunks[b.chunk]
	block = c.data[b.at : b.at+b.size]
	if c.blocks--; c.blocks == 0 && int(b.chunk) != q.current {
		q.free = append(q.free, int(b.chunk))
	}
	return b.time, block
}

// sink puts a block that was the last one where the first one was, and restores the order.
func (q *Queue) sink(b queued) {
	i := 0
	for {
		child := 2*i + 1
		if child >= len(q.heap) {
			break
		}
		if child+1 < len(q.heap) && q.heap[child+1].before(&q.heap[child]) {
			child++
		}
		if !q.heap[child].before(&b) {
			break
		}
		q.heap[i] = q.heap[child]
		i = child
	}
	q.heap[i] = b
}

// reserve makes the current chunk one that has room for n bytes.
func (q *Queue) reserve(n int) *chunk {
	if len(q.chunks) > 0 {
		c := &q.chunks[q.current]
		if c.blocks == 0 {
			c.data = c.data[:0]
		}
		if cap(c.data)-len(c.data) >= n {
			return c
		}
		if c.blocks == 0 {
			q.free = append(q.free, q.current)
		}
	}
	if last := len(q.free) - 1; last >= 0 {
		q.current, q.free = q.free[last], q.free[:last]
	} else {
		q.current = len(q.chunks)
		q.chunks = append(q.chunks, chunk{})
	}
	c := &q.chunks[q.current]
	if c.data = c.data[:0]; cap(c.data) < n || cap(c.data) > chunkLen { // the memory of a rare large block is not kept
		c.data = make([]byte, 0, max(n, chunkLen))
	}
	return c
}
