package carrier

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// lingerTime is how long the peer's bytes are thrown away after an early response, so that it can read the response.
const lingerTime = 500 * time.Millisecond

// conn is one accepted connection.
type conn struct {
	carrier *Carrier
	down    *net.TCPConn
	// to is the address that the peer connected to.
	to netip.AddrPort
	// wg has the goroutines that read upstreams.
	wg sync.WaitGroup
	// buffers is the bufferSize of its sockets. It does not change: a buffer that shrinks under a transfer makes the kernel drop bytes.
	buffers int
	// counted bytes at the last call of moved, which uses it alone.
	counted int64

	// Of the goroutine that reads the peer.
	in       buffer
	scanner  headScanner
	head     head
	headSize int
	requests int
	// sent is the number of bytes that were read of the peer. After an error of a copy it may be too small.
	sent uint64
	// greeted: the carrier has sent HTTP/2 settings.
	greeted bool

	mu sync.Mutex
	// settled is signalled when any of these change.
	settled sync.Cond
	app     *upstream
	client  *upstream
	// last got the newest request.
	last *upstream
	// raw gets all further bytes of the peer.
	raw *upstream
	// final: raw has had its last request.
	final bool
	// discard: further bytes of the peer are thrown away.
	discard bool
	// noMore: the peer has ended its direction.
	noMore bool
	closed bool
	// leaving is the accepted socket of a closed connection whose peer has not taken all; else nil.
	leaving  *os.File
	exchange exchange
}

// exchange is a request whose response is not complete. Without one, up is nil.
type exchange struct {
	up *upstream
	// method and path for the history.
	method, path string
	// sending its first bytes: whether the upstream takes them is not known.
	sending bool
	// asked and answered: request and response are complete.
	asked, answered bool
	// abandoned: the upstream did not take the whole request.
	abandoned bool
	// expects: the request waits for a 100. continued: the 100 came. started: the body came. skipped: the final response came before
	// both, so the body may follow or not.
	expects, continued, started, skipped bool
	upgrade, last, recorded              bool
	// endless: the client's response ends with the connection, which gets no further request.
	endless bool
	// begun: bytes of the upstream were taken for the response. status is the response's.
	begun  bool
	status int
	// response belongs to the goroutine that reads up, while the exchange lasts.
	response response
}

func newConn(c *Carrier, down *net.TCPConn, to netip.AddrPort) *conn {
	resetOnClose(down)
	one := &conn{carrier: c, down: down, to: to}
	one.settled.L = &one.mu
	return one
}

// Read reads what the peer sends.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.down.Read(b)
	c.sent += uint64(n)
	return n, err
}

func (c *conn) routes() *portRoutes { return c.carrier.routing.Load().port(c.to.Port()) }

// close ends everything. With abort the peers learn that it is no regular end.
func (c *conn) close(abort bool) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	c.record()
	app, client := c.app, c.client
	// got: the client has got all that there is for it.
	got := c.noMore || c.raw != client && (c.exchange.up != client || c.exchange.asked)
	if !abort {
		c.keepUntaken()
	}
	leaving := c.leaving
	c.settled.Broadcast()
	c.mu.Unlock()
	_ = c.down.Close()
	if leaving != nil {
		shutdown(leaving)
	}
	switch {
	case app == nil:
	case abort:
		_ = app.abort()
	default:
		_ = app.Close()
	}
	switch {
	case client == nil:
	case got && !abort:
		client.leave()
	default:
		_ = client.Close()
	}
}

// cut ends a connection at any moment. Without a reset, a response that has no length, or bytes that are not HTTP, would look whole.
func (c *conn) cut() {
	c.mu.Lock()
	underWay := c.exchange.up != nil && !c.exchange.answered
	var app *upstream // that may still read after the end of its own direction
	if c.raw != nil {
		underWay = !c.final && !errors.Is(c.raw.endedBy, io.EOF)
		if c.raw == c.app && c.raw.ended && !c.noMore && !c.discard {
			app = c.app
		}
	}
	c.mu.Unlock()
	if app != nil {
		_ = app.abort()
	}
	c.close(underWay)
}

// closeIdle closes a connection that waits for a request.
func (c *conn) closeIdle() {
	c.mu.Lock()
	idle := c.exchange.up == nil && c.raw == nil && c.last != nil
	c.mu.Unlock()
	if idle {
		c.close(false)
	}
}

// linger ends the direction to the peer, which may still send a request that got its response.
func (c *conn) linger() {
	_ = c.down.CloseWrite()
	_ = c.down.SetReadDeadline(time.Now().Add(lingerTime))
}

// adopt begins to read an upstream, and may pin the connection to it before. It closes it if the connection is closed or pinned already.
func (c *conn) adopt(up *upstream, pinned bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || pinned && c.raw != nil {
		_ = up.Close()
		return false
	}
	if up.app() {
		c.app = up
		resetOnClose(up.tcp)
		setBuffers(up.tcp, c.buffers)
	} else {
		c.client = up
	}
	if pinned { // before its first bytes are read: a server may speak first
		c.pinTo(up)
	}
	c.wg.Go(func() { c.respond(up) })
	return true
}

// detach gives up an upstream that has no exchange. The caller holds mu.
func (c *conn) detach(up *upstream) {
	if up == nil || up.detached {
		return
	}
	up.detached = true
	if c.app == up {
		c.app = nil
	}
	if c.client == up {
		c.client = nil
	}
	up.leave()
}

// pinTo sends all further bytes of the peer to an upstream. The caller holds mu.
func (c *conn) pinTo(up *upstream) {
	c.raw = up
	c.record()
	if up.app() {
		c.detach(c.client)
	} else {
		c.detach(c.app)
	}
	c.settled.Broadcast()
}

// complete ends the exchange if request and response are complete. It reports whether the connection is to be closed. The caller
// holds mu.
func (c *conn) complete() (closing bool) {
	x := &c.exchange
	if x.up == nil || !x.asked || !x.answered || c.raw != nil {
		return false
	}
	c.record()
	switch {
	case x.last && x.up.app():
		c.raw, c.final = x.up, true
		c.detach(c.client) // or serve waits for its end, which may never come
	case x.last:
		c.discard = true
	}
	c.exchange = exchange{}
	c.settled.Broadcast()
	return c.noMore
}

// record adds an exchange with a client to the history, once. Stowaway forwards no others, and they would take the places of these. The
// caller holds mu.
func (c *conn) record() {
	x := &c.exchange
	if x.up == nil || x.up.app() || x.recorded {
		return
	}
	x.recorded = true
	c.carrier.history.add(x.up.route, tunnel.Request{
		Pod: c.carrier.cfg.PodUID, Route: x.up.route.id, Port: c.to.Port(), Method: x.method, Path: x.path, Status: x.status, Client: true,
	})
}
