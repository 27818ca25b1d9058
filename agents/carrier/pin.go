package carrier

import (
	"context"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// appTimeout of a connection to the app.
const appTimeout = 10 * time.Second

// pin sends all bytes of the connection to a route's client, or to the app.
func (c *conn) pin(r *route) {
	if r != nil {
		if up, _ := c.useClient(r, true); up != nil {
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
	c.head = head{} // its texts are parts of up to 64 KiB, and the connection may last
	if c.greeted {
		if err := c.relayUntilAck(up); err != nil {
			c.abandonRaw(up)
			return
		}
	}
	if c.in.len() > 0 {
		if _, err := up.Write(c.in.bytes()); err != nil {
			c.abandonRaw(up)
			return
		}
	}
	c.in.free()
	if err := copyAll(up, c); err != nil {
		c.abandonRaw(up)
		return
	}
	if tunnel.CutAfter(c.down, c.sent) { // a write to the peer took the error; a part of what it sent must not look whole
		c.close(true)
		return
	}
	c.mu.Lock()
	c.noMore = true
	c.mu.Unlock()
	_ = up.CloseWrite() // fails if up has ended, which its reader handles
}

// abandonRaw stops the peer's direction of a pinned connection. The upstream's direction may go on.
func (c *conn) abandonRaw(up *upstream) {
	if hasReset(c.down) { // the copy took the error; a part of what the peer sent must not look whole
		c.close(true)
		return
	}
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
	if !c.adopt(up, false) { // what it sends first pins the connection anyway
		return nil
	}
	return up
}

// useClient returns a stream to a route's client, or nil if the client refuses. A stream that was not used before is fresh; it can be
// pinned from its beginning.
func (c *conn) useClient(r *route, pinned bool) (up *upstream, fresh bool) {
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
	if !c.adopt(up, pinned) {
		return nil, true
	}
	return up, true
}
