package carrier

import (
	"errors"
	"io"
	"os"
)

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
	r := p.choose(&c.head)
	c.head.forget()
	if r != nil {
		if c.head.http2 && p.shares(r) {
			c.head.upgrade = false // the client would get the connection's further requests, also those that it does not match
		}
		if up := c.sendToClient(r, n, rest.done()); up != nil {
			r.matched.Add(1)
			return c.sendBody(up, &rest)
		}
		r.failed.Add(1)
	}
	p.passed()
	return c.sendToApp(n, &rest)
}

// sendToApp sends a request whose first n bytes are here to the app.
func (c *conn) sendToApp(n int, rest *body) bool {
	for {
		c.mu.Lock()
		fresh := c.app == nil
		c.mu.Unlock()
		up := c.useApp()
		if up == nil {
			return false
		}
		if c.send(up, n, rest.done()) {
			return c.sendBody(up, rest)
		}
		switch {
		case c.over():
			return c.settle()
		case fresh: // the app takes no request, and another connection would end in the same way
			c.close(true)
			return false
		}
	}
}

// sendToClient returns nil if no byte of the request reached the client.
func (c *conn) sendToClient(r *route, n int, whole bool) *upstream {
	for {
		up, fresh := c.useClient(r, false)
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
		c.upstreamEnded(up, up.endedBy, up.held)
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
		c.in.rest() // the kernel copies the rest, which may take long
		var n int64
		n, err = splice(up.tcp, c.down, rest.left)
		rest.left -= n
		c.sent += uint64(n)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			// The error may be of either side. If it is the app's, its response may be on its way.
			c.abandon()
			return false
		}
	} else {
		c.in.grow()
		err = c.in.fill(c)
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
	if closing {
		c.close(false)
		return
	}
	_ = up.CloseWrite() // fails if up has ended, which its reader handles: it may have a response
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
		err := c.in.fill(c)
		switch {
		case err == nil:
			c.in.skip(c.in.len())
			continue
		case errors.Is(err, io.EOF):
			c.endAfterUpstream()
		default:
			c.close(!errors.Is(err, os.ErrDeadlineExceeded))
		}
		return
	}
}

// endAfterUpstream handles the end of the peer's direction of a connection that takes no more of it. An upstream may still send: its
// goroutine ends the connection after it. An end before that would make a part of a response look whole.
func (c *conn) endAfterUpstream() {
	c.mu.Lock()
	up := c.raw
	if up == nil && !c.exchange.answered {
		up = c.exchange.up
		c.exchange.asked = up != nil // as in cutShort
	}
	c.noMore = true
	ended := up == nil || up.ended
	c.mu.Unlock()
	switch {
	case up == nil:
		c.close(false)
	case !ended && hasReset(c.down): // a call that copied for both sides may have taken the error
		c.close(true)
	default:
		_ = up.CloseWrite() // fails if up has ended
	}
}
