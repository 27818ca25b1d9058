package pcapng

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// Blocks leave by time and then by arrival, with the bytes that came in, whatever the order of pushes and pops.
func TestQueue(t *testing.T) {
	var q Queue
	random := rand.New(rand.NewPCG(1, 2))
	type key struct{ time, n uint64 }
	waiting := map[key]int{}
	pop := func() {
		t.Helper()
		first, _ := q.First()
		at, block := q.Pop()
		k := key{at, binary.LittleEndian.Uint64(block)}
		size, ok := waiting[k]
		if !ok || first != at || len(block) != size || !bytes.Equal(block[8:], bytes.Repeat([]byte{byte(k.n)}, size-8)) {
			t.Fatalf("block %d of time %d with %d bytes, want %d", k.n, at, len(block), size)
		}
		for o := range waiting {
			if o.time < k.time || o.time == k.time && o.n < k.n {
				t.Fatalf("%v left before %v", k, o)
			}
		}
		delete(waiting, k)
	}
	for n := range uint64(4000) {
		size := 8 + random.IntN(2000)
		if n%500 == 0 {
			size = 2 * chunkLen
		}
		block := append(binary.LittleEndian.AppendUint64(nil, n), bytes.Repeat([]byte{byte(n)}, size-8)...)
		k := key{random.Uint64N(100), n}
		waiting[k] = size
		q.Push(k.time, block)
		for q.Len() > 50+random.IntN(100) {
			pop()
		}
	}
	for q.Len() > 0 {
		pop()
	}
	if _, ok := q.First(); ok || q.Bytes() != 0 || len(waiting) > 0 {
		t.Errorf("the empty queue has %d bytes, and %d blocks never left", q.Bytes(), len(waiting))
	}
}

// A queue that is never longer than some blocks reuses its memory.
func TestQueueReusesMemory(t *testing.T) {
	var q Queue
	block := make([]byte, 1500)
	for at := range uint64(10_000) {
		q.Push(at, block)
		if q.Len() > 300 {
			q.Pop()
		}
	}
	if n := len(q.chunks) * chunkLen; n > 1<<20 {
		t.Errorf("%d bytes for 450 KB", n)
	}
	if allocs := testing.AllocsPerRun(1000, func() {
		q.Push(1, block)
		q.Pop()
	}); allocs > 0 {
		t.Errorf("%v allocations for a block", allocs)
	}
}

// A late block keeps the memory of the chunk that it is in, and the queue counts it.
func TestMemoryOfLateBlocks(t *testing.T) {
	var q Queue
	block := make([]byte, 1000)
	for n := range uint64(20) {
		q.Push(1<<60, block)
		for range chunkLen / len(block) {
			q.Push(n, block)
		}
		for q.Len() > int(n)+1 {
			q.Pop()
		}
	}
	if q.Bytes() > 30*len(block) || q.Memory() < 20*chunkLen {
		t.Errorf("%d bytes of blocks in %d bytes of memory", q.Bytes(), q.Memory())
	}
	for q.Len() > 0 {
		q.Pop()
	}
	if q.Memory() > 2*chunkLen {
		t.Errorf("%d bytes of memory without a block", q.Memory())
	}
}
