package ring

import "unsafe"

// InMemory makes a ring in ordinary memory, for tests of its readers. size is a power of two in bytes, longest the most
// bytes of a record. Reader and writer begin at position at.
func InMemory(size, longest int, at uint64) *Ring {
	words := make([]uint64, (headLen+size+slackLen(longest))/8) // aligned as mapped memory is
	r := newRing(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words)), size)
	r.head.Store(at)
	r.tail.Store(at)
	r.pos, r.last = at, at
	return r
}

// Put appends a record as a program does (reserve, next_head, publish), and reports whether there was room. Without
// room it counts a lost record of this kind.
func (r *Ring) Put(record []byte, kind uint32) bool {
	head, size := r.head.Load(), uint64(len(record))
	if head+size-r.tail.Load() > r.size {
		r.lost.Add(1)
		*(*uint64)(unsafe.Pointer(&r.top[lostAt+8*int(kind)]))++
		return false
	}
	at := head & (r.size - 1)
	copy(r.data[at:], record)
	r.head.Store(head + min(size, r.size-at))
	return true
}
