package stowaway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Bounds of streams.
const (
	maxStreams        = 8192 // in all
	maxSessionStreams = 2048 // of one client
	// openTimeout is how long a client may take to connect to its destination. The client gives up after 5 s.
	openTimeout = 10 * time.Second
	maxReason   = 1 << 10
	maxValue    = 256 // of a header of a stream
)

// A stream whose reader is slow holds up to a window in this process (internal/wire/tunnel). Slow streams above maxStalled end,
// the slowest first.
const (
	maxStalled    = 24
	stalledAfter  = 2 * time.Second
	stallInterval = time.Second
)

// Sizes of copies. A quiet stream holds the small buffer only.
const (
	smallBuffer = 2 << 10
	largeBuffer = 64 << 10
)

var largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// stream joins a carrier's stream with one of a client.
type stream struct {
	session *session
	pod     string
	cancel  context.CancelFunc
	// Since when each direction has waited for its reader, in ns since 1970; 0 if it does not wait.
	toClient, toCarrier atomic.Int64
}

// open answers a carrier's stream with a stream of the route's client.
func (s *server) open(w http.ResponseWriter, r *http.Request, c *carrier) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	st, refused := s.admit(r.PathValue("id"), c, cancel)
	if refused != nil {
		http.Error(w, refused.Reason, refused.Status)
		return
	}
	defer s.release(st)
	body := &upload{body: r.Body, out: http.NewResponseController(w), since: &st.toClient}
	defer body.finish()
	// HTTP/2's client looks at its context only when it does not read the body.
	defer context.AfterFunc(ctx, func() { _ = body.Close() })()
	response, refused := st.dial(ctx, body, r.Header, c.name)
	if refused != nil {
		http.Error(w, refused.Reason, refused.Status)
		return
	}
	defer response.Body.Close()
	// A write waits for a carrier that does not read, whatever becomes of the context.
	defer context.AfterFunc(ctx, body.cut)()
	w.WriteHeader(http.StatusOK)
	if err := st.copyBack(w, response.Body); err != nil {
		panic(http.ErrAbortHandler) // resets the stream, so that its end is not mistaken for a whole one
	}
}

// admit counts a stream to a route of the carrier's Pod. A route of another Pod is answered like none at all.
func (s *server) admit(id string, c *carrier, cancel context.CancelFunc) (*stream, *tunnel.Refused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	route, session := s.index.routes[id], s.sessions[id]
	switch {
	case route == nil || !route.pods[c.pod] || s.carriers[c.pod] != c:
		return nil, &tunnel.Refused{Status: http.StatusNotFound, Reason: "this Pod has no such route"}
	case session == nil:
		return nil, &tunnel.Refused{Status: http.StatusServiceUnavailable, Reason: "the client is not connected"}
	case len(session.streams) >= maxSessionStreams || s.opened >= maxStreams:
		return nil, &tunnel.Refused{Status: http.StatusTooManyRequests, Reason: "too many streams at once"}
	}
	st := &stream{session: session, pod: c.pod, cancel: cancel}
	session.streams[st] = struct{}{}
	s.opened++
	return st, nil
}

func (s *server) release(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(st.session.streams, st)
	s.opened--
}

// dial opens the stream to the client. A refusal of the client keeps its status.
func (st *stream) dial(ctx context.Context, body *upload, header http.Header, pod string) (*http.Response, *tunnel.Refused) {
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
	if !late.Stop() && err == nil {
		_ = response.Body.Close()
		err = context.DeadlineExceeded
	}
	switch {
	case err != nil:
		return nil, &tunnel.Refused{Status: http.StatusBadGateway, Reason: "the client does not answer"}
	case response.StatusCode == http.StatusOK:
		return response, nil
	}
	defer response.Body.Close()
	reason, _ := io.ReadAll(io.LimitReader(response.Body, maxReason))
	status := response.StatusCode
	if status < http.StatusBadRequest || status > 599 {
		status = http.StatusBadGateway
	}
	return nil, &tunnel.Refused{Status: status, Reason: strings.TrimSpace(string(reason))}
}

// upload is what the carrier sends. It notes since when its reader has kept what it last read.
type upload struct {
	body  io.Reader
	since *atomic.Int64

	mu  sync.Mutex
	out *http.ResponseController // nil when the handler returns
}

func (u *upload) Read(b []byte) (int, error) {
	u.since.Store(0)
	n, err := u.body.Read(b)
	if err == nil {
		u.since.Store(time.Now().UnixNano())
	}
	return n, err
}

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
		n, err := from.Read(buffer)
		if n > 0 {
			st.toCarrier.Store(time.Now().UnixNano())
			_, werr := w.Write(buffer[:n])
			if werr == nil {
				werr = out.Flush()
			}
			st.toCarrier.Store(0)
			if werr != nil {
				err = werr
			}
		}
		// A full buffer means that more is to come.
		switch {
		case err == nil && large == nil && n == len(buffer):
			large = largeBuffers.Get().(*[largeBuffer]byte)
			buffer = large[:]
		case large != nil && (err != nil || n < smallBuffer):
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

// waits returns since when the slower direction has waited for its reader, or 0.
func (st *stream) waits() int64 {
	a, b := st.toClient.Load(), st.toCarrier.Load()
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// cutStalled ends slow streams that are too many, until ctx ends.
func (s *server) cutStalled(ctx context.Context) error {
	ticker := time.NewTicker(stallInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if n := s.cutStalledAt(time.Now()); n > 0 {
				s.log.Warn("Ending streams that are not read", "streams", n)
			}
		}
	}
}

func (s *server) cutStalledAt(now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	type stalled struct {
		stream *stream
		since  int64
	}
	var all []stalled
	for _, session := range s.sessions {
		for st := range session.streams {
			if since := st.waits(); since != 0 && now.Sub(time.Unix(0, since)) > stalledAfter {
				all = append(all, stalled{st, since})
			}
		}
	}
	extra := max(0, len(all)-maxStalled)
	slices.SortFunc(all, func(a, b stalled) int { return cmp.Compare(a.since, b.since) })
	for _, o := range all[:extra] {
		o.stream.cancel()
	}
	return extra
}
