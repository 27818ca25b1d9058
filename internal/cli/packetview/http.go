package packetview

import (
	"slices"
	"strings"
	"time"
)

const (
	// maxRoutes limits the routes that are counted separately.
	maxRoutes = 1 << 12
	// maxWaiting limits the requests of a connection that wait for a response. maxAllWaiting limits those of all connections,
	// each of which has room for one nevertheless.
	maxWaiting    = 64
	maxAllWaiting = 1 << 17
	// maxKept limits the bytes of incomplete messages of all connections.
	maxKept = 16 << 20
)

// Route sums up the requests of one method to one host and path.
type Route struct {
	Method, Host, Path string
	Requests           uint64
	// Unanswered requests have no response in the file.
	Unanswered uint64
	// Statuses counts the responses by their code. Beyond maxStatuses codes, it counts those of a class together, as 400 for example.
	Statuses map[int]uint64
	// Took is the time from the end of a request to the end of its response.
	Took Durations
}

// maxStatuses of a route.
const maxStatuses = 16

func (r *Route) count(status int) {
	if _, known := r.Statuses[status]; !known && len(r.Statuses) >= maxStatuses {
		status -= status % 100
	}
	r.Statuses[status]++
}

// Failed counts responses with a code of 400 or more.
func (r *Route) Failed() uint64 {
	var n uint64
	for status, count := range r.Statuses {
		if status >= 400 {
			n += count
		}
	}
	return n
}

// RouteKey identifies a Route.
type RouteKey struct{ Method, Host, Path string }

// HTTP sums up the messages of HTTP/1 without encryption.
type HTTP struct {
	Requests, Responses, Unanswered uint64
	Statuses                        map[int]uint64
	// Took is the time from the end of a request to the end of its response.
	Took Durations
	// Routes by method, host and path. Other counts requests beyond the limit.
	Routes map[RouteKey]*Route
	Other  uint64

	kept    int // bytes of incomplete messages in memory
	waiting int // requests in memory that wait for a response
}

func newHTTP() HTTP { return HTTP{Statuses: map[int]uint64{}, Routes: map[RouteKey]*Route{}} }

func (t *HTTP) route(h *head) *Route {
	k := RouteKey{h.method, h.host, h.path}
	r := t.Routes[k]
	if r == nil && len(t.Routes) < maxRoutes {
		r = &Route{Method: h.method, Host: h.host, Path: h.path, Statuses: map[int]uint64{}}
		t.Routes[k] = r
	}
	return r
}

// exchange pairs the requests and responses of one connection.
type exchange struct {
	all    *HTTP
	halves [2]half
	// waiting requests, the oldest first. The newest may still be sent.
	waiting []request
	// current is the request of the response that is being received; its method is empty without one.
	current request
	final   bool // the response is not a 1xx
}

// half is one direction. Whether it has the requests is known from its messages.
type half struct {
	stream

	exchange *exchange
	request  bool
}

type request struct {
	method string
	at     uint64 // of its last byte so far
	route  *Route // nil beyond the limit
}

func newExchange(all *HTTP) *exchange {
	x := &exchange{all: all}
	x.halves[0].exchange, x.halves[1].exchange = x, x
	return x
}

// add reads a segment of one side.
func (x *exchange) add(s *segment, from int) {
	h := &x.halves[from]
	h.add(s, h)
}

func (h *half) keep(delta int) bool {
	h.exchange.all.kept += delta
	return delta <= 0 || h.exchange.all.kept <= maxKept
}

func (h *half) begin(m head, at uint64) (framing, int64) {
	h.request = m.request
	if m.request {
		h.exchange.beginRequest(&m, at)
	} else {
		h.exchange.beginResponse(&m)
	}
	return m.framing, m.size
}

func (x *exchange) beginRequest(m *head, at uint64) {
	x.all.Requests++
	route := x.all.route(m)
	if route == nil {
		x.all.Other++
	} else {
		route.Requests++
	}
	if n := len(x.waiting); n >= maxWaiting || n > 0 && x.all.waiting >= maxAllWaiting {
		x.unanswered(x.oldest())
	}
	x.waiting = append(x.waiting, request{methodOf(m), at, route})
	x.all.waiting++
}

// methodOf returns the method of a request as a constant, because methods may be long and many requests wait.
func methodOf(m *head) string {
	for _, known := range methods {
		if known = strings.TrimSuffix(known, " "); known == m.method {
			return known
		}
	}
	return "other"
}

// oldest removes the request that has waited for the longest time, and the memory that is not needed any more.
func (x *exchange) oldest() request {
	r := x.waiting[0]
	x.waiting = slices.Delete(x.waiting, 0, 1)
	if cap(x.waiting) > 4*len(x.waiting) {
		x.waiting = append([]request(nil), x.waiting...)
	}
	x.all.waiting--
	return r
}

func (x *exchange) beginResponse(m *head) {
	x.all.Responses++
	x.all.Statuses[m.status]++
	x.final = m.status >= 200 || m.status == 101
	if !x.final {
		return
	}
	x.current = request{}
	if len(x.waiting) > 0 {
		x.current = x.oldest()
		m.answers(x.current.method)
	}
	if r := x.current.route; r != nil {
		r.count(m.status)
	}
}

func (h *half) end(at uint64) {
	x := h.exchange
	switch {
	case h.request:
		if n := len(x.waiting); n > 0 {
			x.waiting[n-1].at = at
		}
	case x.final && x.current.method != "":
		took := time.Duration(at - x.current.at)
		x.all.Took.add(took)
		if r := x.current.route; r != nil {
			r.Took.add(took)
		}
		x.current = request{}
	}
}

// close counts the requests that have no response, and forgets incomplete messages.
func (x *exchange) close() {
	for i := range x.halves {
		h := &x.halves[i]
		h.drop(h)
	}
	for _, r := range x.waiting {
		x.unanswered(r)
	}
	x.all.waiting -= len(x.waiting)
	x.waiting = nil
}

func (x *exchange) unanswered(r request) {
	x.all.Unanswered++
	if r.route != nil {
		r.route.Unanswered++
	}
}
