package carrier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"
)

const (
	// silence is how long a connection may wait for its first byte. After it the server may be the one that speaks first.
	silence = 300 * time.Millisecond
	// lineTime is how long the first request line may take, and headTime a head. Then the app has to deal with it.
	lineTime = time.Second
	headTime = 10 * time.Second
	// appTimeout of a connection to the app.
	appTimeout = 10 * time.Second
)

var (
	errPinned = errors.New("pinned meanwhile")
	errClosed = errors.New("closed meanwhile")
)

// serve relays the connection until it ends.
func (c *conn) serve() {
	defer func() {
		c.wg.Wait()
		c.close(false)
		c.in.free()
	}()
	p := c.routes()
	for _, r := range p.all {
		r.connections.Add(1)
	}
	if !c.first(p) {
		return
	}
	for c.next() {
	}
}

// first waits for the first bytes. It returns false when the connection has ended.
func (c *conn) first(p *portRoutes) bool {
	rest := p.liveRest()
	switch {
	case p.unread():
		c.pin(rest)
		return false
	case !p.live: // the app gets the connection at once; requests are read because a client may come
		return c.useApp() != nil
	}
	_ = c.down.SetReadDeadline(time.Now().Add(silence))
	err := c.in.fill(c.down)
	_ = c.down.SetReadDeadline(time.Time{})
	switch {
	case err == nil:
		return true
	case errors.Is(err, os.ErrDeadlineExceeded) && rest == nil:
		// If the app speaks first, respond pins the connection to it.
		return c.useApp() != nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.pin(rest)
	case !errors.Is(err, io.EOF):
		c.close(true)
	case rest != nil && rest.probesToClient:
		c.pin(rest)
	default: // a TCP probe
		c.pin(nil)
	}
	return false
}

// next relays one request. It returns false when the connection has ended.
func (c *conn) next() bool {
	if c.in.len() == 0 {
		if err := c.in.fill(c.down); err != nil {
			c.ended(err)
			return false
		}
	}
	if !c.settle() {
		return false
	}
	err := c.readHead()
	switch {
	case errors.Is(err, errClosed):
		return false
	case errors.Is(err, errPinned):
		return c.settle()
	case errors.Is(err, errNotHTTP) && c.requests == 0:
		c.notHTTP1()
		return false
	case err != nil:
		c.pin(nil)
		return false
	}
	c.requests++
	return c.request()
}

// notHTTP1 handles a connection that does not begin like HTTP/1. A later version may read the server name of TLS here.
func (c *conn) notHTTP1() {
	rest := c.routes().liveRest()
	if rest != nil && !rest.probesToClient && bytes.HasPrefix(c.in.bytes(), []byte(prefaceLine)) {
		c.firstHTTP2(rest)
		return
	}
	c.pin(rest)
}

// settle waits for the end of the exchange. If the connection is pinned, it relays all of it and returns false.
func (c *conn) settle() bool {
	c.mu.Lock()
	for !c.closed && c.raw == nil && !c.discard && c.exchange.up != nil && !c.exchange.endless {
		c.settled.Wait()
	}
	raw, discard, closed, busy := c.raw, c.discard, c.closed, c.exchange.up != nil
	c.mu.Unlock()
	switch {
	case closed:
	case raw != nil:
		c.relayRaw(raw)
	case discard:
		c.throwAway()
	case busy: // the client's response has no end, so its next one would have no beginning
		c.close(true)
	default:
		return true
	}
	return false
}

// readHead reads until the head is complete.
func (c *conn) readHead() error {
	c.scanner = headScanner{}
	var began time.Time
	for {
		n, err := c.scanner.find(c.in.bytes())
		if err != nil {
			return err
		}
		if n > 0 {
			if !began.IsZero() {
				_ = c.down.SetReadDeadline(time.Time{})
			}
			c.headSize = n
			return c.head.parse(string(c.in.bytes()[:n]))
		}
		if began.IsZero() {
			began = time.Now()
		}
		if err := c.readMore(began); err != nil {
			return err
		}
	}
}

// readMore reads a part of a head that began at a time.
func (c *conn) readMore(began time.Time) error {
	deadline, late := began.Add(headTime), errAmbiguous
	if c.scanner.line == 0 && c.requests == 0 {
		deadline, late = began.Add(lineTime), errNotHTTP
	}
	_ = c.down.SetReadDeadline(deadline)
	err := c.in.fill(c.down)
	c.mu.Lock()
	pinned := c.raw != nil
	c.mu.Unlock()
	switch {
	case err == nil && !pinned:
		return nil
	case err == nil, pinned && errors.Is(err, os.ErrDeadlineExceeded):
		_ = c.down.SetReadDeadline(time.Time{})
		return errPinned
	case errors.Is(err, os.ErrDeadlineExceeded):
		_ = c.down.SetReadDeadline(time.Time{})
		return late
	case errors.Is(err, io.EOF):
		return late
	default:
		c.close(true)
		return errClosed
	}
}

// request sends one request to where it belongs.
func (c *conn) request() bool {
	rest := c.head.body
	n, err := rest.feed(c.in.bytes()[c.headSize:])
	if err != nil {
		c.pin(nil)
		return false
	}
	n += c.headSize
	p := c.routes()
	if r := p.choose(&c.head); r != nil {
		if up := c.sendToClient(r, n, rest.done()); up != nil {
			r.matched.Add(1)
			return c.sendBody(up, &rest)
		}
		r.failed.Add(1)
	}
	p.passed()
	for {
		up := c.useApp()
		if up == nil {
			return false
		}
		if c.send(up, n, rest.done()) {
			return c.sendBody(up, &rest)
		}
		if c.over() {
			return c.settle()
		}
	}
}

// sendToClient returns nil if no byte of the request reached the client.
func (c *conn) sendToClient(r *route, n int, whole bool) *upstream {
	for {
		up, fresh := c.useClient(r)
		if up == nil {
			return nil
		}
		if c.send(up, n, whole) {
			return up
		}
		if fresh || c.over() {
			return nil
		}
	}
}

// over reports whether no further request is read.
func (c *conn) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed || c.raw != nil
}

// send begins an exchange with the first n bytes. It returns false if none of them was taken; then there is no exchange.
func (c *conn) send(up *upstream, n int, whole bool) bool {
	h := &c.head
	c.mu.Lock()
	if c.closed || c.raw != nil || up.ended || up.detached {
		c.detachEnded(up)
		c.mu.Unlock()
		return false
	}
	x := &c.exchange
	*x = exchange{up: up, sending: true, method: h.Method, path: h.Path, expects: h.expects, upgrade: h.upgrade, last: h.last}
	x.response.toHead, x.response.toConnect = h.Method == "HEAD", h.Method == "CONNECT"
	x.started = whole || n > c.headSize
	c.last = up
	c.mu.Unlock()
	written, err := up.Write(c.in.bytes()[:n])
	c.mu.Lock()
	if written == 0 && err != nil && c.raw == nil {
		// A response to a request that was not sent could be taken for the one of the app.
		forged := x.begun
		*x = exchange{}
		c.detach(up)
		c.mu.Unlock()
		if forged {
			c.close(true)
		}
		return false
	}
	x.sending = false
	x.asked = whole && err == nil
	x.abandoned = err != nil
	closing, ended := c.complete(), up.ended
	c.mu.Unlock()
	c.in.skip(n)
	if ended { // it ended while it was not known whether it had taken the request
		c.upstreamEnded(up, up.endedBy, nil)
	}
	if closing {
		c.close(false)
	}
	return true
}

// detachEnded forgets an upstream that has ended. The caller holds mu.
func (c *conn) detachEnded(up *upstream) {
	if up.ended && c.raw != up {
		c.detach(up)
	}
}

// sendBody relays the rest of a request. It returns false when the connection has ended.
func (c *conn) sendBody(up *upstream, rest *body) bool {
	if rest.done() {
		return true
	}
	for !rest.done() {
		if c.in.len() == 0 && !c.readBody(up, rest) {
			return false
		}
		if rest.done() {
			break
		}
		n, err := rest.feed(c.in.bytes())
		if c.cannotContinue(up, err != nil) {
			return false
		}
		if _, err := up.Write(c.in.bytes()[:n]); err != nil {
			c.abandon()
			return false
		}
		c.in.skip(n)
	}
	c.mu.Lock()
	c.exchange.asked = true
	closing := c.complete()
	c.mu.Unlock()
	if closing {
		c.close(false)
	}
	return true
}

// readBody reads more of a body, or relays the rest of a large one. It returns false when the connection has ended.
func (c *conn) readBody(up *upstream, rest *body) bool {
	var err error
	if rest.kind == sized && rest.left > largeBuffer && up.tcp != nil && !c.exchange.expects {
		var n int64
		n, err = splice(up.tcp, c.down, rest.left)
		rest.left -= n
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			// The error may be of either side. If it is the app's, its response may be on its way.
			c.abandon()
			return false
		}
	} else {
		c.in.grow()
		err = c.in.fill(c.down)
	}
	switch {
	case err == nil:
		return true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		c.cutShort(up)
	default:
		c.close(!errors.Is(err, os.ErrDeadlineExceeded)) // linger sets a deadline
	}
	return false
}

// cannotContinue handles a malformed chunk, and bytes after a response that made a body unnecessary. It reports whether one of
// them has ended the connection.
func (c *conn) cannotContinue(up *upstream, malformed bool) bool {
	c.mu.Lock()
	malformed = malformed || c.exchange.skipped
	c.exchange.started = true
	if malformed && up.app() && c.raw == nil {
		c.pinTo(up)
	}
	c.mu.Unlock()
	switch {
	case !malformed:
		return false
	case up.app():
		c.relayRaw(up)
	default:
		c.close(true)
	}
	return true
}

// cutShort passes on that the peer ended its direction in the middle of a request.
func (c *conn) cutShort(up *upstream) {
	c.mu.Lock()
	c.noMore = true
	c.exchange.asked = true
	closing := c.complete()
	c.mu.Unlock()
	if closing || up.CloseWrite() != nil {
		c.close(false)
	}
}

// abandon stops a request that the upstream does not take. Its response may come, or have come.
func (c *conn) abandon() {
	c.mu.Lock()
	c.discard = true
	c.exchange.abandoned = true
	answered := c.exchange.answered || c.exchange.up == nil || c.exchange.up.ended
	c.mu.Unlock()
	if answered {
		c.linger()
	}
	c.throwAway()
}

// throwAway reads until the peer ends.
func (c *conn) throwAway() {
	c.in.free()
	for {
		if err := c.in.fill(c.down); err != nil {
			c.close(!errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded))
			return
		}
		c.in.skip(c.in.len())
	}
}

// ended handles the end of the peer's direction between two requests.
func (c *conn) ended(err error) {
	if !errors.Is(err, io.EOF) {
		c.close(!errors.Is(err, os.ErrDeadlineExceeded))
		return
	}
	c.mu.Lock()
	c.noMore = true
	up := c.raw
	if up == nil {
		up = c.exchange.up
	}
	idle := up == nil
	unused := idle && c.last == nil && c.app != nil
	c.mu.Unlock()
	switch {
	case unused: // a TCP probe
		c.pin(nil)
	case idle || up.CloseWrite() != nil:
		c.close(false)
	}
}

// pin sends all bytes of the connection to a route's client, or to the app.
func (c *conn) pin(r *route) {
	if r != nil {
		if up, _ := c.useClient(r); up != nil {
			r.matched.Add(1)
			c.pinAndRelay(up)
			return
		}
		r.failed.Add(1)
	}
	c.routes().passed()
	if up := c.useApp(); up != nil {
		c.pinAndRelay(up)
	}
}

func (c *conn) pinAndRelay(up *upstream) {
	c.mu.Lock()
	if c.raw == nil {
		c.pinTo(up)
	}
	up = c.raw
	c.mu.Unlock()
	c.relayRaw(up)
}

// relayRaw relays the peer's direction to its end.
func (c *conn) relayRaw(up *upstream) {
	if c.in.len() > 0 {
		if _, err := up.Write(c.in.bytes()); err != nil {
			c.abandonRaw(up)
			return
		}
	}
	c.in.free()
	if err := copyAll(up, c.down); err != nil {
		c.abandonRaw(up)
		return
	}
	_ = up.CloseWrite() // fails if up has ended, which its reader handles
}

// abandonRaw stops the peer's direction of a pinned connection. The upstream's direction may go on.
func (c *conn) abandonRaw(up *upstream) {
	c.mu.Lock()
	c.discard = true
	ended := up.ended
	c.mu.Unlock()
	if ended {
		c.linger()
	}
	c.throwAway()
}

// useApp returns the connection to the app. If there is none and the app refuses, the peer is refused, too.
func (c *conn) useApp() *upstream {
	c.mu.Lock()
	up := c.app
	c.mu.Unlock()
	if up != nil {
		return up
	}
	ctx, cancel := context.WithTimeout(c.carrier.ctx, appTimeout)
	defer cancel()
	tcp, err := c.carrier.pod.Dial(ctx, c.to)
	if err != nil {
		c.close(true)
		return nil
	}
	up = &upstream{duplex: tcp, tcp: tcp}
	if !c.adopt(up) {
		return nil
	}
	return up
}

// useClient returns a stream to a route's client, or nil if the client refuses. A stream that was not used before is fresh.
func (c *conn) useClient(r *route) (up *upstream, fresh bool) {
	c.mu.Lock()
	up = c.client
	if up != nil && (up.ended || up.route.id != r.id) {
		c.detach(up)
		up = nil
	}
	c.mu.Unlock()
	if up != nil {
		return up, false
	}
	stream, err := c.carrier.open(r, c.down.RemoteAddr(), c.down.LocalAddr())
	if err != nil {
		return nil, true
	}
	up = &upstream{duplex: stream, route: r}
	if !c.adopt(up) {
		return nil, true
	}
	return up, true
}
