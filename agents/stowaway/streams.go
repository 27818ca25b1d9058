package stowaway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/memory"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Bounds of streams.
const (
	maxStreams          = 8192 // in all
	maxNamespaceStreams = maxStreams / 2
	maxSessionStreams   = 2048 // of one client
	// openTimeout is how long a client may take to connect to its destination. The client gives up after 5 s.
	openTimeout = 10 * time.Second
	// endTimeout is how long a stream may hold its memory after relieve has ended it. If it takes longer, its carrier does not read.
	endTimeout = 2 * time.Second
	maxReason  = 1 << 10
	maxValue   = 256 // of a header of a stream
)

// The approximate size of a stream and of a connection in bytes, if nothing piles up.
const (
	streamHolds     = 32 << 10
	connectionHolds = 64 << 10
)

// maxExcess of memory in bytes, up to which streams are refused, and only those end that wait. Namespaces that take little open streams in
// it.
const maxExcess = 32 << 20

// Sizes of copies. A stream that waits for bytes holds the small buffer only, at the price of one more short read for each burst.
const (
	smallBuffer = 2 << 10
	largeBuffer = 64 << 10
)

var largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// stream joins a carrier's stream with one of a client.
type stream struct {
	session *session
	pod     string
	// namespace of the Pod. An InterceptRequest in a hub is in another one, which many users share.
	namespace string
	cancel    context.CancelFunc
	// ended is when relieve has ended it, or zero. Its memory is free when its handler returns.
	ended time.Time
	// What one direction's reader does not take piles up in this process: up to tunnel.Near to the client, and tunnel.Far to the
	// carrier.
	toClient, toCarrier memory.Flow
}

// open answers a carrier's stream with a stream of the route's client.
func (s *server) open(w http.ResponseWriter, r *http.Request, c *carrier) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	st, refused := s.admit(r.PathValue("id"), c, cancel)
	if refused != nil {
		refuse(w, r, refused.Status, refused.Reason)
		return
	}
	defer s.release(st)
	body := &upload{body: r.Body, out: http.NewResponseController(w), flow: &st.toClient}
	defer body.finish()
	// HTTP/2's client looks at its context only when it does not read the body.
	defer context.AfterFunc(ctx, func() { _ = body.Close() })()
	st.toClient.Begin(time.Now())
	answer, refused := st.dial(ctx, body, r.Header, c.name)
	if refused != nil {
		refuse(w, r, refused.Status, refused.Reason)
		return
	}
	// A write waits for a carrier that does not read, whatever becomes of the context.
	defer context.AfterFunc(ctx, body.cut)()
	w.WriteHeader(http.StatusOK)
	if st.copyBack(w, answer) != nil {
		// Reset the stream, so that its end is not mistaken for a whole one. With http.ErrAbortHandler, HTTP/2's server panics if the
		// carrier resets the stream while its own reset is being written.
		body.cut()
		<-r.Context().Done()
	}
}

// admit counts a stream to a route of the carrier's Pod. A route of another Pod is answered like none at all.
func (s *server) admit(id string, c *carrier, cancel context.CancelFunc) (*stream, *tunnel.Refused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	route, session, namespace := s.index.routes[id], s.sessions[id], namespaceOf(c.name)
	switch {
	case route == nil || !route.pods[c.pod] || s.carriers[c.pod] != c:
		return nil, &tunnel.Refused{Status: http.StatusNotFound, Reason: "this Pod has no such route"}
	case session == nil:
		return nil, &tunnel.Refused{Status: http.StatusServiceUnavailable, Reason: "the client is not connected"}
	case len(session.streams)+session.ending >= maxSessionStreams || s.opened[namespace] >= maxNamespaceStreams || s.openedInAll() >= maxStreams:
		return nil, &tunnel.Refused{Status: http.StatusTooManyRequests, Reason: "too many streams at once"}
	case s.crowding[namespace]:
		return nil, &tunnel.Refused{Status: http.StatusTooManyRequests, Reason: "Stowaway's memory is short"}
	}
	st := &stream{session: session, pod: c.pod, namespace: namespace, cancel: cancel}
	session.streams[st], s.streams[st] = struct{}{}, struct{}{}
	s.opened[namespace]++
	return st, nil
}

// openedInAll counts the streams of all namespaces. The caller holds the lock.
func (s *server) openedInAll() (n int) {
	for _, of := range s.opened {
		n += of
	}
	return n
}

func (s *server) release(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(st.session.streams, st)
	st.session.ending++
	select {
	case st.session.left <- struct{}{}:
	default: // settle has not looked since the last one
	}
	delete(s.streams, st)
	if s.opened[st.namespace]--; s.opened[st.namespace] == 0 {
		delete(s.opened, st.namespace)
	}
}

// dial opens the stream to the client, and returns what the client sends until ctx ends. A refusal of the client keeps its status.
func (st *stream) dial(ctx context.Context, body *upload, header http.Header, pod string) (io.Reader, *tunnel.Refused) {
	request, err := tunnel.NewRequest(ctx, http.MethodPost, tunnel.PathOpen+st.session.id, body)
	if err != nil {
		return nil, &tunnel.Refused{Status: http.StatusInternalServerError, Reason: err.Error()}
	}
	request.Header.Set(tunnel.HeaderPod, pod)
	for _, name := range []string{tunnel.HeaderPeer, tunnel.HeaderDestination} {
		if value := header.Get(name); value != "" {
			request.Header.Set(name, cut(value, maxValue))
		}
	}
	late := time.AfterFunc(openTimeout, st.cancel)
	response, err := st.session.peer.Do(request)
	if err == nil {
		// Not by the handler: Close waits for a client whose connection takes no bytes, and the handler has the stream's place.
		context.AfterFunc(ctx, func() { _ = response.Body.Close() })
	}
	switch {
	case !late.Stop(), err != nil:
		return nil, &tunnel.Refused{Status: http.StatusBadGateway, Reason: "the client does not answer"}
	case response.StatusCode == http.StatusOK:
		return response.Body, nil
	}
	reason, _ := io.ReadAll(io.LimitReader(response.Body, maxReason))
	status := response.StatusCode
	if status < http.StatusBadRequest || status > 599 {
		status = http.StatusBadGateway
	}
	return nil, &tunnel.Refused{Status: status, Reason: strings.TrimSpace(string(reason))}
}

// upload is what the carrier sends.
type upload struct {
	body io.Reader
	flow *memory.Flow

	mu  sync.Mutex
	out *http.ResponseController // nil when the handler returns
}

func (u *upload) Read(b []byte) (int, error) { return u.flow.Read(u.body, b) }

// Close ends a Read, too.
func (u *upload) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.out == nil {
		return nil
	}
	return u.out.SetReadDeadline(time.Unix(1, 0))
}

// cut ends writes to the carrier.
func (u *upload) cut() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.out != nil {
		_ = u.out.SetWriteDeadline(time.Unix(1, 0)) // an error means that the stream has ended
	}
}

func (u *upload) finish() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.out = nil
}

// copyBack sends the carrier what the client sends, as it arrives.
func (st *stream) copyBack(w http.ResponseWriter, from io.Reader) error {
	out := http.NewResponseController(w)
	if err := out.Flush(); err != nil {
		return err
	}
	small := make([]byte, smallBuffer)
	for buffer, large := small, (*[largeBuffer]byte)(nil); ; {
		n, err := st.toCarrier.Read(from, buffer)
		if n > 0 {
			_, werr := w.Write(buffer[:n])
			if werr == nil {
				werr = out.Flush()
			}
			if werr != nil {
				err = werr
			}
		}
		// A full buffer means that more is to come.
		switch {
		case err == nil && large == nil && n == len(buffer):
			large = largeBuffers.Get().(*[largeBuffer]byte)
			buffer = large[:]
		case large != nil && (err != nil || n < len(buffer)):
			largeBuffers.Put(large)
			large, buffer = nil, small
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// relieve ends streams while memory is short, until ctx ends.
func (s *server) relieve(ctx context.Context) error {
	memory.Check(ctx, func(now time.Time) {
		if s.settling {
			runtime.GC() // or the excess has the memory of those that have ended since
		}
		n := s.relieveAt(now, memory.Excess())
		s.locked.Store(time.Now().UnixNano())
		if n > 0 {
			s.log.Warn("Ending streams or connections, because memory is short", "ended", n)
			runtime.GC()
		}
	})
	return nil
}

// relieveAt ends streams of the namespace that takes the most memory until they held the excess: the slowest ones of those that wait. If
// none of them waits, it ends quiet ones. It leaves maxExcess if no namespace has streams that wait: to refuse new ones may be enough. If
// the namespace has no stream, it loses connections. No stream is opened meanwhile in the namespaces that take the most.
func (s *server) relieveAt(now time.Time, excess int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crowding, s.settling = nil, false
	l := s.load(now, excess > 0)
	relieved := s.relieved
	s.relieved = ""
	if excess <= 0 {
		return 0
	}
	shares := s.shares(l.held)
	s.crowding = crowding(shares)
	culprit := largest(shares)
	free := excess - l.ending[culprit]
	worst := memory.Worst(l.waiting[culprit], free)
	if len(worst) > 0 {
		s.relieved = culprit
	}
	over := overOfQuiet(free, len(l.held) > 0, len(worst) > 0, relieved == culprit)
	worst = append(worst, memory.Worst(l.quiet[culprit], over)...)
	for _, st := range worst {
		st.ended = now
		st.cancel()
	}
	n := s.disconnectStuck(l.stuck) + len(worst)
	if n == 0 && l.ending[culprit] == 0 {
		n = s.disconnect(culprit, excess-maxExcess)
	}
	s.settling = n > 0
	return n
}

// load is what the streams take, by their namespaces.
type load struct {
	waiting, quiet map[string][]memory.Waiter[*stream]
	// held in bytes by those that wait, and by those that relieve has ended.
	held map[string]int
	// ending in bytes is what the streams of a namespace that relieve has ended free within endTimeout. It spares other streams of
	// that namespace only: its Pods and clients can delay the end on purpose.
	ending map[string]int
	// stuck are the streams that relieve ended longer ago than endTimeout.
	stuck []*stream
}

// load looks at all streams, and lists quiet ones only while memory is short. The caller holds the lock.
func (s *server) load(now time.Time, short bool) *load {
	l := &load{
		waiting: map[string][]memory.Waiter[*stream]{}, quiet: map[string][]memory.Waiter[*stream]{}, held: map[string]int{}, ending: map[string]int{},
	}
	for st := range s.streams {
		l.add(st, now, short)
	}
	return l
}

func (l *load) add(st *stream, now time.Time, short bool) {
	w, namespace := st.waits(now), st.namespace
	if w.Holds > 0 {
		l.held[namespace] += w.Holds
	}
	switch {
	case !st.ended.IsZero() && now.Sub(st.ended) > endTimeout:
		l.stuck = append(l.stuck, st)
	case !st.ended.IsZero():
		l.ending[namespace] += max(w.Holds, streamHolds)
	case w.Holds > 0:
		l.waiting[namespace] = append(l.waiting[namespace], w)
	case short:
		w.Holds = streamHolds
		l.quiet[namespace] = append(l.quiet[namespace], w)
	}
}

// disconnectStuck closes the connections of the carriers that have these streams. A stream does not end before its carrier has read
// what was sent to it, and a carrier that was taken over may never read. It returns the number of carriers. The caller holds the lock.
func (s *server) disconnectStuck(streams []*stream) (n int) {
	for _, st := range streams {
		if c := s.carriers[st.pod]; c != nil && c.connections.any() {
			c.connections.closeAll()
			n++
		}
	}
	return n
}

// overOfQuiet returns the bytes to free by quiet streams of a namespace; waits: streams of any namespace wait; ends: some of this one end.
// Then it keeps its quiet ones, unless those that ended at the last check were not enough: they may have held less than their windows.
func overOfQuiet(excess int, waits, ends, endedBefore bool) int {
	switch {
	case ends && !endedBefore:
		return 0
	case ends || !waits:
		return excess - maxExcess
	}
	return excess
}

// disconnect closes connections of a namespace to free some bytes: those that hold the most. It returns their number. The caller holds
// the lock.
func (s *server) disconnect(namespace string, free int) (n int) {
	type open struct {
		holds int
		end   func()
	}
	var all []open
	for _, session := range s.sessions {
		if namespaceOf(session.name) == namespace {
			all = append(all, open{session.holds(), session.end})
		}
	}
	for _, c := range s.carriers {
		if namespaceOf(c.name) != namespace {
			continue
		}
		for _, own := range c.connections.open {
			all = append(all, open{own.holds(), own.end})
		}
	}
	slices.SortFunc(all, func(a, b open) int { return cmp.Compare(b.holds, a.holds) })
	for ; n < len(all) && free > 0; n++ {
		all[n].end()
		free -= all[n].holds
	}
	return n
}

// largest returns the namespace with the largest share.
func largest(shares map[string]int) (most string) {
	for namespace, n := range shares {
		if n > shares[most] {
			most = namespace
		}
	}
	return most
}

// shares adds to held what the open streams and connections of each namespace take besides. The caller holds the lock.
func (s *server) shares(held map[string]int) map[string]int {
	shares, opened := maps.Clone(held), maps.Clone(s.opened)
	for _, session := range s.sessions {
		shares[namespaceOf(session.name)] += session.holds()
	}
	for _, c := range s.carriers {
		for _, own := range c.connections.open {
			shares[namespaceOf(c.name)] += own.holds()
			opened[namespaceOf(c.name)] -= own.opened()
		}
	}
	for namespace, n := range opened { // of connections that have ended
		shares[namespace] += max(0, n) * streamHolds
	}
	return shares
}

// crowding returns the namespaces with at least half of the largest share. A namespace that takes little is not among them, whatever
// takes the memory.
func crowding(shares map[string]int) map[string]bool {
	most, crowding := shares[largest(shares)], map[string]bool{}
	for namespace, n := range shares {
		if 2*n >= most {
			crowding[namespace] = true
		}
	}
	return crowding
}

// waits returns what the stream may hold.
func (st *stream) waits(now time.Time) memory.Waiter[*stream] {
	toClient, toCarrier := st.toClient.Waits(now), st.toCarrier.Waits(now)
	w := memory.Waiter[*stream]{Of: st, Moved: st.toClient.Moved() + st.toCarrier.Moved(), Waits: max(toClient, toCarrier)}
	if toClient > memory.CheckInterval {
		w.Holds += int(tunnel.Near)
	}
	if toCarrier > memory.CheckInterval {
		w.Holds += int(tunnel.Far)
	}
	return w
}
