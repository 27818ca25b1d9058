// Package connlimit bounds the connections of a server, which one client cannot use up alone. Everything in the cluster's
// network can open a connection to the manager and to keepers, and each takes memory before it has shown who it is.
package connlimit

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// HeaderBytes is the longest header of a request, as in most web servers: a token may have 7 KiB.
const HeaderBytes = 8 << 10

// MaxHeld bounds the bytes that the connections of a Listener have sent for requests that are not whole, or not of a known
// user. net/http keeps some 16 times as much memory for many short headers.
const MaxHeld = 1 << 20

// WriteBuffer of a connection in bytes; Linux doubles it. Without it, the kernel keeps up to 4 MiB (tcp_wmem) for another side that takes
// little. With cgroup v2 that counts for the server's container. 128 KiB are 2 Gbit/s at 0.5 ms, and the other sides are in the cluster.
const WriteBuffer = 128 << 10

// strangerBuffer is the WriteBuffer of a connection without Sending. Otherwise clients that send requests, and read no answer, would fill as
// much memory.
const strangerBuffer = 8 << 10

// Listener accepts any number of connections and keeps at most a limit of them open. Above it the host with the most
// gives up its oldest one that serves no request of a known user (Serving). So does above MaxHeld the host whose
// connections hold the most. A listener that waits instead would be closed by whoever holds all connections.
type Listener struct {
	net.Listener
	limit        int
	maxStrangers int // 0 without a bound of its own

	mu        sync.Mutex
	strangers int // connections that serve no known user
	accepted  uint64
	open      map[*connection]struct{}
	held      int // by all of them
}

// connection of a Listener.
type connection struct {
	net.Conn
	listener *Listener
	host     string
	number   uint64      // in the order of their acceptance
	serving  int         // requests of known users
	known    atomic.Bool // serving is not 0
	served   atomic.Bool // serving was not 0 at some time
	received int         // bytes since its last request of a known user
	held     int         // received, when it began to wait for more
	large    bool        // it has a WriteBuffer
}

// Listen returns a Listener that keeps at most limit connections of l open.
func Listen(l net.Listener, limit int) *Listener {
	return &Listener{Listener: l, limit: limit, open: map[*connection]struct{}{}}
}

// BoundStrangers bounds the connections that serve no request of a known user, apart from the others. Call it before Accept.
func (l *Listener) BoundStrangers(limit int) *Listener {
	l.maxStrangers = limit
	return l
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: accepted, listener: l, host: hostOf(accepted)}
	c.setWriteBuffer()
	for _, extra := range l.add(c) {
		extra.drop()
	}
	return c, nil
}

// add counts c, and returns the connections to close if there are too many.
func (l *Listener) add(c *connection) (extra []*connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted++
	c.number = l.accepted
	l.open[c] = struct{}{}
	l.strangers++
	for len(l.open) > l.limit || l.maxStrangers > 0 && l.strangers > l.maxStrangers {
		one := l.giveUp(func(*connection) int { return 1 })
		if one == nil {
			break // all serve
		}
		extra = append(extra, one)
	}
	return extra
}

// hold counts what c has received before it waits for more, and returns the connections to close if that is too much.
func (l *Listener) hold(c *connection) (extra []*connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[c]; !open || c.serving > 0 {
		return nil
	}
	c.resize(false) // the last answer has been written; Sending enlarges it for the next
	l.held += c.received - c.held
	c.held = c.received
	for l.held > MaxHeld {
		extra = append(extra, l.giveUp(func(o *connection) int { return o.held }))
	}
	return extra
}

// giveUp counts a connection no longer, and returns it: the oldest one of the host with the highest load, among those with a
// load that serve no known user. It returns nil if there is none.
func (l *Listener) giveUp(load func(*connection) int) *connection {
	hosts := map[string]int{}
	for o := range l.open {
		if o.serving == 0 {
			hosts[o.host] += load(o)
		}
	}
	var extra *connection
	for o := range l.open {
		if o.serving > 0 || load(o) == 0 {
			continue
		}
		if extra == nil || hosts[o.host] > hosts[extra.host] || hosts[o.host] == hosts[extra.host] && o.number < extra.number {
			extra = o
		}
	}
	if extra != nil {
		l.remove(extra)
	}
	return extra
}

func (l *Listener) remove(c *connection) {
	if _, open := l.open[c]; open {
		delete(l.open, c)
		l.held -= c.held
		if c.serving == 0 {
			l.strangers--
		}
	}
}

// Read implements net.Conn. For known users it does not take the lock, which a flood of connections keeps busy.
func (c *connection) Read(p []byte) (int, error) {
	if !c.known.Load() {
		for _, extra := range c.listener.hold(c) {
			extra.drop()
		}
	}
	n, err := c.Conn.Read(p)
	if c.known.Load() {
		return n, err
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.received += n
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// drop closes a connection. What a stranger has not taken goes with it: the kernel would keep that for minutes, and with cgroup v2 it
// counts for this container. A known user may still be taking the end of an answer.
func (c *connection) drop() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok && !c.served.Load() {
		_ = tcp.SetLinger(0) // an error means that it is closed
	}
	_ = c.Conn.Close()
}

// resize sets the size of the write buffer. The caller holds the listener's lock.
func (c *connection) resize(large bool) {
	if c.large == large {
		return
	}
	c.large = large
	c.setWriteBuffer()
}

func (c *connection) setWriteBuffer() {
	n := strangerBuffer
	if c.large {
		n = WriteBuffer
	}
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(n) // an error means that it has ended
	}
}

type key struct{}

// Context is the ConnContext of the http.Server that serves a Listener, with TLS or without.
func Context(ctx context.Context, c net.Conn) context.Context {
	if encrypted, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = encrypted.NetConn()
	}
	return context.WithValue(ctx, key{}, c)
}

// Serving keeps the connection of a request, whose context this is, open until release is called.
func Serving(ctx context.Context) (release func()) {
	c, ok := ctx.Value(key{}).(*connection)
	if !ok {
		return func() {} // the server of a test
	}
	c.serve(1)
	return func() { c.serve(-1) }
}

// Sending gives the connection of a request, whose context this is, the WriteBuffer for a long answer: until sent is called, or until the
// connection waits for its next request.
func Sending(ctx context.Context) (sent func()) {
	c, ok := ctx.Value(key{}).(*connection)
	if !ok {
		return func() {} // the server of a test
	}
	resize := func(large bool) {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.resize(large)
	}
	resize(true)
	return func() { resize(false) }
}

func (c *connection) serve(n int) {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	before := c.serving
	c.serving += n
	c.known.Store(c.serving > 0)
	c.served.Store(true)
	if _, open := l.open[c]; open {
		l.held -= c.held
		switch {
		case before == 0:
			l.strangers--
		case c.serving == 0:
			l.strangers++
		}
	}
	// The next request may have arrived with this one.
	c.held, c.received = 0, HeaderBytes
}

// hostOf returns the address of the client without its port.
func hostOf(c net.Conn) string {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.IP.String()
	}
	return c.RemoteAddr().String()
}
