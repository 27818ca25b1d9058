package decode

import (
	"slices"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// Bounds on the remembered operations. A new one beyond them replaces an old one, whose result then has no arguments.
const (
	maxSubmitted = 1 << 14
	// maxSubmittedBytes is less than maxSubmitted operations with long paths have.
	maxSubmittedBytes = 16 << 20
	// operationBytes is the memory of an operation without its paths and its address, and of its places in two maps.
	operationBytes = 512
)

// submitted is an operation of an io_uring that has not ended.
type submitted struct {
	head          kernel.Head
	uring         kernel.Uring
	entry         [64]byte
	first, second string
	address       []byte
	// began is the time of the submission, in nanoseconds since boot. That in head is the one of the last result.
	began uint64
	// hasEvent says that an event of it was made: one of its results, or its submission if its success has none.
	hasEvent bool
}

// ringData identifies operations where the request is not known: by their ring and the number that their process gave them.
// The kernel reuses a ring's address, so the process is part of it.
type ringData struct {
	pid            uint32
	ring, userData uint64
	// silent operations have no result if they succeed: no record says when the number is free again.
	silent bool
}

// urings remembers submitted operations until they end.
type urings struct {
	byRequest map[uint64]*submitted
	byData    map[ringData][]uint64 // requests in the order of their submission
	// endedByData has the requests that a result without a request has ended. It may have been another one's with the same data.
	endedByData map[ringData][]uint64
	bytes       int // the memory of all operations
	// forgotten counts operations without an event that were forgotten while they waited for their results.
	forgotten uint64
}

func newURings() urings {
	return urings{byRequest: map[uint64]*submitted{}, byData: map[ringData][]uint64{}, endedByData: map[ringData][]uint64{}}
}

func (u *urings) remember(e *kernel.Record) *submitted {
	s := &submitted{head: *e.Head, began: e.Head.Time, uring: *e.Uring, first: string(e.First), second: string(e.Second), address: append([]byte(nil), e.Address...)}
	copy(s.entry[:], e.Entry)
	if before := u.byRequest[s.uring.Request]; before != nil && !u.exchange(s.uring.Request, before) {
		u.lose(s.uring.Request, before) // its end has no record: its process never took its result, or the ring was full
	}
	for request, other := range u.byRequest { // any
		if len(u.byRequest) < maxSubmitted && u.bytes+s.bytes() <= maxSubmittedBytes {
			break
		}
		u.lose(request, other)
	}
	u.bytes += s.bytes()
	u.byRequest[s.uring.Request] = s
	u.byData[s.data()] = append(u.byData[s.data()], s.uring.Request)
	return s
}

// exchange moves an operation that has ended without an event, because the kernel has used its request again. If the event of
// its result was made of another one with the same data, that one has not ended: the operation gets its request.
func (u *urings) exchange(request uint64, s *submitted) bool {
	data := s.data()
	ended, at := u.endedByData[data], slices.Index(u.byData[data], request)
	if s.hasEvent || len(ended) == 0 || at < 0 {
		return false
	}
	other := ended[0]
	u.forget(other, u.byRequest[other])
	delete(u.byRequest, request)
	s.uring.Request = other
	u.byRequest[other], u.byData[data][at] = s, other
	return true
}

// lose forgets an operation before its end.
func (u *urings) lose(request uint64, s *submitted) {
	u.forget(request, s)
	if !s.hasEvent {
		u.forgotten++
	}
}

func (s *submitted) bytes() int {
	return operationBytes + len(s.first) + len(s.second) + len(s.address)
}

func (s *submitted) silent() bool { return s.uring.Flags&entrySkipSuccess != 0 }

func (s *submitted) data() ringData {
	return ringData{s.head.Pid, s.uring.Ring, s.uring.UserData, s.silent()}
}

// withData returns the request of the operation that a result without a request most likely belongs to; zero if none is known.
// A silent operation has often ended before, so it is the last choice, and of several the newest.
func (u *urings) withData(e *kernel.Record) uint64 {
	data := ringData{pid: e.Head.Pid, ring: e.Uring.Ring, userData: e.Uring.UserData}
	if same := u.byData[data]; len(same) > 0 {
		return same[0]
	}
	data.silent = true
	if same := u.byData[data]; len(same) > 0 {
		return same[len(same)-1]
	}
	return 0
}

func (u *urings) forget(request uint64, s *submitted) {
	delete(u.byRequest, request)
	u.bytes -= s.bytes()
	remove(u.byData, s.data(), request)
	remove(u.endedByData, s.data(), request)
}

func remove(from map[ringData][]uint64, data ringData, request uint64) {
	same := from[data]
	at := slices.Index(same, request)
	switch {
	case at < 0:
	case len(same) == 1:
		delete(from, data)
	default:
		from[data] = slices.Delete(same, at, at+1)
	}
}

// endByData ends an operation by a result that may be another one's with the same data.
func (u *urings) endByData(request uint64, s *submitted) {
	remove(u.byData, s.data(), request)
	u.endedByData[s.data()] = append(u.endedByData[s.data()], request)
}

// instead returns the operation for the second result of one that can have only one. The first result was another one's with
// the same data. Each operation gets one of the results; their process cannot tell them apart either.
func (u *urings) instead(s *submitted, request uint64) *submitted {
	other := u.byRequest[request]
	if s.silent() || other.head.Call != s.head.Call {
		return s
	}
	u.endByData(request, other)
	return other
}

// end returns the operation of a result; nil if it is not known.
func (u *urings) end(e *kernel.Record) *submitted {
	request := e.Uring.Request
	if request == 0 {
		request = u.withData(e)
	}
	s := u.byRequest[request]
	if s == nil {
		return nil
	}
	switch {
	case e.Uring.Request == 0 && e.Uring.Flags&resultMore == 0:
		u.endByData(request, s)
	case e.Uring.Request != 0:
		again := slices.Contains(u.endedByData[s.data()], request)
		u.forget(request, s)
		if s.head.Call != e.Head.Call {
			if !s.hasEvent {
				u.forgotten++
			}
			return nil // the end of an earlier one was lost
		}
		if same := u.byData[s.data()]; again && len(same) > 0 {
			s = u.instead(s, same[0])
		}
	}
	s.hasEvent = true
	return s
}
