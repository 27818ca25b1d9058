// Package connections serves https with a bound on connections, which one client cannot use up alone. Everything in the
// cluster's network can open a connection to the manager, and each takes memory before it has shown a token.
package connections

import (
	"context"
	"net"
	"sync"
)

// Listener accepts any number of connections and keeps at most a limit of them open. Above it the host with the most
// gives up its oldest one that serves no request of a known user (Serving). A listener that waits instead would be
// closed by whoever holds all connections.
type Listener struct {
	net.Listener
	limit int

	mu       sync.Mutex
	accepted uint64
	open     map[*connection]struct{}
}

// connection of a Listener.
type connection struct {
	net.Conn
	listener *Listener
	host     string
	number   uint64 // in the order of their acceptance
	serving  int    // requests of known users
}

// Listen returns a Listener that keeps at most limit connections of l open.
func Listen(l net.Listener, limit int) *Listener {
	return &Listener{Listener: l, limit: limit, open: map[*connection]struct{}{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: accepted, listener: l, host: hostOf(accepted)}
	if extra := l.add(c); extra != nil {
		_ = extra.Close()
	}
	return c, nil
}

// add counts c, and returns the connection to close if there are too many.
func (l *Listener) add(c *connection) *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted++
	c.number = l.accepted
	l.open[c] = struct{}{}
	if len(l.open) <= l.limit {
		return nil
	}
	hosts := map[string]int{}
	for o := range l.open {
		if o.serving == 0 {
			hosts[o.host]++
		}
	}
	var extra *connection
	for o := range l.open {
		if o.serving > 0 {
			continue
		}
		if extra == nil || hosts[o.host] > hosts[extra.host] || hosts[o.host] == hosts[extra.host] && o.number < extra.number {
			extra = o
		}
	}
	return extra
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
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

func (c *connection) serve(n int) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.serving += n
}

// hostOf returns the address of the client without its port.
func hostOf(c net.Conn) string {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.IP.String()
	}
	return c.RemoteAddr().String()
}
