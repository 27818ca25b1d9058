package carrier

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

const (
	// silence is how long a connection may wait for its first byte. After it the server may be the one that speaks first.
	silence = 300 * time.Millisecond
	// lineTime is how long the first request line may take, and headTime a head. Then the app has to deal with it.
	lineTime = time.Second
	headTime = 10 * time.Second
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
		c.taken()
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
	err := c.in.fill(c)
	_ = c.down.SetReadDeadline(time.Time{})
	switch {
	case err == nil:
		return true
	case errors.Is(err, os.ErrDeadlineExceeded) && rest == nil:
		// If the app speaks first, respond pins the connection to it.
		return c.useApp() != nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.countBehind(false)
		c.pin(rest)
	case !errors.Is(err, io.EOF):
		c.close(true)
	case rest != nil && rest.probesToClient:
		p.countBehind(true)
		c.pin(rest)
	default: // a TCP probe
		c.pin(nil)
	}
	return false
}

// next relays one request. It returns false when the connection has ended.
func (c *conn) next() bool {
	if c.in.len() == 0 {
		c.in.rest()
		if err := c.in.fill(c); err != nil {
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

// notHTTP1 handles a connection that does not begin like HTTP/1.
func (c *conn) notHTTP1() {
	p := c.routes()
	rest := p.liveRest()
	switch {
	case rest != nil && bytes.HasPrefix(c.in.bytes(), []byte(prefaceLine)):
		c.firstHTTP2(rest)
	case p.tls && c.in.bytes()[0] == recordHandshake:
		c.firstTLS(p)
	default:
		p.countBehind(false)
		c.pin(rest)
	}
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
	case busy: // a peer that sees an end of the client's response would take what follows for the next one
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
	defer func() {
		if !began.IsZero() { // whatever follows may take longer than a head
			_ = c.down.SetReadDeadline(time.Time{})
		}
	}()
	for {
		n, err := c.scanner.find(c.in.bytes())
		if err != nil {
			return err
		}
		if n > 0 {
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
	err := c.in.fill(c)
	c.mu.Lock()
	pinned := c.raw != nil
	c.mu.Unlock()
	switch {
	case err == nil && !pinned:
		return nil
	case err == nil, pinned && errors.Is(err, os.ErrDeadlineExceeded):
		return errPinned
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, errNoRoom), errors.Is(err, io.EOF):
		return late
	default:
		c.close(true)
		return errClosed
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
	case !idle && tunnel.CutAfter(c.down, c.sent): // a write took the error
		c.close(true)
	case unused: // a TCP probe
		c.pin(nil)
	case idle:
		c.close(false)
	default:
		_ = up.CloseWrite() // fails if up has ended, which its reader handles: it may have a response
	}
}
