package carrier

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

const (
	// recordHandshake is the first byte of a TLS connection (RFC 8446, section 5.1).
	recordHandshake = 0x16
	// helloTime is how long a ClientHello may take. Then the app has to deal with it.
	helloTime = 10 * time.Second
)

// firstTLS reads the ClientHello, and pins the connection to where its server name belongs. The bytes pass unchanged.
func (c *conn) firstTLS(p *portRoutes) {
	_ = c.down.SetReadDeadline(time.Now().Add(helloTime))
	name, complete := serverName(c.in.bytes())
	for !complete && c.in.len() < maxHead && c.in.fill(c.down) == nil {
		if wholeRecord(c.in.bytes()) {
			name, complete = serverName(c.in.bytes())
		}
	}
	_ = c.down.SetReadDeadline(time.Time{})
	c.pin(p.chooseServerName(name))
}

// wholeRecord reports whether the first record is complete. A peer that sends byte by byte costs one attempt at parsing it.
func wholeRecord(b []byte) bool {
	const header = 5
	return len(b) >= header && len(b) >= header+int(binary.BigEndian.Uint16(b[3:]))
}

// serverName returns the name that the ClientHello at the start of b asks for; empty if it asks for none. It is complete if more bytes
// change nothing. crypto/tls parses it, and refuses the connection to itself then.
func serverName(b []byte) (name string, complete bool) {
	from := hello{bytes.NewReader(b)}
	seen := false
	err := tls.Server(from, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { //nolint:gosec // nothing is served
		name, seen = h.ServerName, true
		return nil, errSeen
	}}).Handshake() //nolint:noctx // it only reads memory
	return name, seen || !errors.Is(err, io.ErrUnexpectedEOF)
}

var errSeen = errors.New("seen")

// hello is a connection whose peer has sent some bytes, and waits.
type hello struct{ sent *bytes.Reader }

func (h hello) Read(b []byte) (int, error) {
	n, err := h.sent.Read(b)
	if err != nil {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (hello) Write(b []byte) (int, error)      { return len(b), nil } // an alert
func (hello) Close() error                     { return nil }
func (hello) LocalAddr() net.Addr              { return nil }
func (hello) RemoteAddr() net.Addr             { return nil }
func (hello) SetDeadline(time.Time) error      { return nil }
func (hello) SetReadDeadline(time.Time) error  { return nil }
func (hello) SetWriteDeadline(time.Time) error { return nil }
