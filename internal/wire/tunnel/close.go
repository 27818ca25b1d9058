package tunnel

import (
	"crypto/tls"
	"net"
)

// CloseNow closes a connection without a word to the other side. The Close of a TLS connection first writes an alert, and waits up to 5 s
// for a side that does not read. The next ping of HTTP/2 lifts that bound, so that the connection would stay for ever.
func CloseNow(conn net.Conn) error {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		_ = secure.NetConn().Close() // an error means that it is closed
	}
	return conn.Close()
}

// prompt is a TLS connection whose Close does not wait.
type prompt struct{ *tls.Conn }

// Close implements net.Conn.
func (p prompt) Close() error { return CloseNow(p.Conn) }
