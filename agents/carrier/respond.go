package carrier

import (
	"bytes"
	"errors"
	"io"
)

// step is what to do after some bytes of an upstream.
type step int

const (
	again step = iota // look at the rest of the bytes
	more              // read more
	stop
)

// respond relays what an upstream sends, until it ends.
func (c *conn) respond(up *upstream) {
	var out buffer
	defer out.free()
	for {
		switch err := out.fill(up); {
		case errors.Is(err, errNoRoom):
			c.giveUpHead(up)
		case err != nil:
			c.upstreamEnded(up, err, out.bytes())
			return
		}
		for next := again; next != more && out.len() > 0; {
			if next = c.relay(up, &out); next == stop {
				up.stopped(&out)
				return
			}
		}
	}
}

// giveUpHead makes the response of an upstream opaque, because there is no memory for the rest of its head.
func (c *conn) giveUpHead(up *upstream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exchange.up == up {
		c.exchange.response.crowded = true
	}
}

// relay looks at bytes of an upstream.
func (c *conn) relay(up *upstream, out *buffer) step {
	c.mu.Lock()
	x := &c.exchange
	switch {
	case c.closed || up.detached:
		c.mu.Unlock()
		return stop
	case c.raw == up:
		c.mu.Unlock()
		c.relayAll(up, out)
		return stop
	case x.up != up || x.answered:
		return c.unsolicited(up)
	}
	x.begun = true
	c.mu.Unlock()
	if !x.response.final {
		return c.relayHead(up, out)
	}
	return c.relayBody(up, out, 0)
}

// unsolicited handles bytes without a request. An app may speak first, or say why it is about to close. A client that does is not
// trusted any more, because its bytes could be taken for another's response. The caller holds mu, which is released.
func (c *conn) unsolicited(up *upstream) step {
	current := c.last == up || c.last == nil
	if current && up.app() {
		if c.last == nil {
			c.routes().passed()
		}
		c.pinTo(up)
		c.mu.Unlock()
		return again
	}
	if !current {
		c.detach(up)
	}
	c.mu.Unlock()
	if current {
		c.close(true)
	}
	return stop
}

// relayAll relays a pinned upstream to its end.
func (c *conn) relayAll(up *upstream, out *buffer) {
	if _, err := c.down.Write(out.bytes()); err != nil {
		c.close(true)
		return
	}
	out.free()
	err := copyAll(c.down, up)
	if err == nil {
		err = io.EOF
	}
	c.upstreamEnded(up, err, nil)
}

// relayHead relays a head when it is complete.
func (c *conn) relayHead(up *upstream, out *buffer) step {
	x := &c.exchange
	r := &x.response
	n := r.readHead(out.bytes())
	if n == 0 {
		return more
	}
	if !r.final {
		if r.status == 100 {
			c.mu.Lock()
			x.continued = true
			c.mu.Unlock()
		}
		return c.write(out, n)
	}
	switch {
	case c.finalHead(up):
		return again
	case r.tunnel, r.opaque:
		// After a tunnel, the client would get what later requests of this connection carry. If the end is unclear, the peer could take a part
		// of this response for the one to a later request.
		c.close(true)
		return stop
	}
	return c.relayBody(up, out, n)
}

// finalHead draws the conclusions of a final head. It reports whether the connection is pinned.
func (c *conn) finalHead(up *upstream) (pinned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := &c.exchange
	r := &x.response
	x.status = r.status
	x.skipped = x.expects && !x.continued && !x.started && !x.asked
	x.last = x.last || r.last || x.skipped
	x.endless = r.body.kind == untilClose && !up.app()
	if up.app() {
		pinned = r.tunnel || r.opaque
	} else {
		pinned = r.tunnel && (x.upgrade || r.toConnect)
	}
	if pinned {
		c.pinTo(up)
	}
	c.settled.Broadcast()
	return pinned
}

// relayBody relays the part of a body that begins after skip bytes, and these.
func (c *conn) relayBody(up *upstream, out *buffer, skip int) step {
	x := &c.exchange
	b := &x.response.body
	n, err := b.feed(out.bytes()[skip:])
	if err != nil {
		if !up.app() {
			c.close(true)
			return stop
		}
		c.mu.Lock()
		c.pinTo(up)
		c.mu.Unlock()
		return again
	}
	if c.write(out, skip+n) == stop {
		return stop
	}
	if b.kind == sized && b.left > largeBuffer && up.tcp != nil {
		out.rest() // the kernel copies the rest, which may take long
		n, err := splice(c.down, up.tcp, b.left)
		b.left -= n
		up.got += uint64(n)
		if errors.Is(err, io.ErrUnexpectedEOF) { // the app has ended, and not failed
			err = io.EOF
		}
		if err != nil {
			c.upstreamEnded(up, err, nil)
			return stop
		}
	}
	if !x.response.done() {
		out.grow()
		return again
	}
	out.rest()
	return c.answered()
}

// answered ends the response of the exchange.
func (c *conn) answered() step {
	c.mu.Lock()
	c.exchange.answered = true
	abandoned := c.exchange.abandoned
	closing := c.complete()
	c.mu.Unlock()
	switch {
	case closing:
		c.close(false)
		return stop
	case abandoned:
		c.linger()
	}
	return again
}

// write sends the first n bytes to the peer.
func (c *conn) write(out *buffer, n int) step {
	if _, err := c.down.Write(out.bytes()[:n]); err != nil {
		c.close(true)
		return stop
	}
	out.skip(n)
	return again
}

// upstreamEnded handles the end of an upstream. held are bytes of a head that is not complete.
func (c *conn) upstreamEnded(up *upstream, err error, held []byte) {
	err = up.endError(err)
	regular := errors.Is(err, io.EOF)
	c.mu.Lock()
	up.ended, up.endedBy = true, err
	x := &c.exchange
	switch {
	case c.closed || up.detached:
		c.mu.Unlock()
	case c.raw == up:
		lingering := c.discard || c.final
		c.mu.Unlock()
		c.writeHeld(up, held)
		switch {
		case !regular:
			c.close(true)
		case lingering:
			c.linger()
		default:
			_ = c.down.CloseWrite() // fails if the peer has gone, which the other goroutine handles
		}
	case x.up != up:
		mirror := c.mirrors(up, regular)
		if !mirror {
			c.detach(up)
		}
		c.mu.Unlock()
		if mirror {
			c.close(false)
		}
	case x.sending: // send decides
		up.held = bytes.Clone(held)
		c.mu.Unlock()
	default:
		c.mu.Unlock()
		c.exchangeEnded(up, regular, held)
	}
}

// mirrors reports whether the peer is to see the end of an upstream that has no exchange, as it would without a carrier. If a client has
// failed, the app can answer further requests. The caller holds mu.
func (c *conn) mirrors(up *upstream, regular bool) bool {
	if up.app() {
		return c.last == up || c.last == nil
	}
	return c.last == up && regular
}

// writeHeld sends the start of a head that the app did not complete, which the peer would get without a carrier, too.
func (c *conn) writeHeld(up *upstream, held []byte) {
	if up.app() && len(held) > 0 {
		_, _ = c.down.Write(held) // fails if the peer has gone, which the other goroutine handles
	}
}

// exchangeEnded handles the end of an upstream in the middle of an exchange. The response is never continued from elsewhere.
func (c *conn) exchangeEnded(up *upstream, regular bool, held []byte) {
	c.writeHeld(up, held)
	c.mu.Lock()
	x := &c.exchange
	whole := x.answered || regular && x.response.final && x.response.body.kind == untilClose
	x.answered = x.answered || whole
	closing, asked := !whole, x.asked
	if whole {
		c.discard = true
		closing = c.complete()
		c.settled.Broadcast()
	}
	c.mu.Unlock()
	if closing {
		c.close(!whole && !regular)
		return
	}
	if asked {
		up.leave()
	} else {
		_ = up.Close() // ends a write that waits
	}
	c.linger()
}
