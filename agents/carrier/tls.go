package carrier

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
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
	records, decided := clientHello(c.in.bytes())
	for !decided && c.in.len() < maxHead && c.in.fill(c) == nil {
		records, decided = clientHello(c.in.bytes())
	}
	_ = c.down.SetReadDeadline(time.Time{})
	c.pin(p.chooseServerName(serverName(records)))
}

// clientHello returns the records at the start of b that hold a whole ClientHello, which may be cut into several records. There are none
// if b starts with something else. It is decided if more bytes change nothing.
func clientHello(b []byte) (records []byte, decided bool) {
	const (
		recordHeader  = 5 // type, version, length of the record
		messageHeader = 4 // type, length of the message
		clientHello   = 1
		major         = 3 // of every version of TLS
		maxRecord     = 1 << 14
	)
	var header []byte
	for end, message := 0, 0; len(b) >= end+recordHeader; {
		size := int(binary.BigEndian.Uint16(b[end+3:]))
		if b[end] != recordHandshake || b[end+1] != major || size == 0 || size > maxRecord {
			return nil, true
		}
		if len(b) < end+recordHeader+size {
			return nil, false
		}
		part := b[end+recordHeader:][:size]
		header = append(header, part[:min(size, messageHeader-len(header))]...)
		end, message = end+recordHeader+size, message+size
		if header[0] != clientHello {
			return nil, true
		}
		if len(header) == messageHeader && message >= messageHeader+int(binary.BigEndian.Uint32(header)&0xffffff) {
			return b[:end], true
		}
	}
	return nil, false
}

// serverName returns the name that a ClientHello asks for; empty if it asks for none. crypto/tls parses it, and refuses the connection to
// itself then. It accepts bytes that no host name has. They count as no name, because a NUL would end the name for an app written in C.
func serverName(records []byte) string {
	var name string
	_ = tls.Server(hello{bytes.NewReader(records)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { //nolint:gosec // nothing is served
		name = h.ServerName
		return nil, errSeen
	}}).Handshake() //nolint:noctx // it only reads memory
	if !all(name, hostByte) {
		return ""
	}
	return name
}

var errSeen = errors.New("seen")

// hello is a connection whose peer has sent a ClientHello and nothing else.
type hello struct{ *bytes.Reader }

func (hello) Write(b []byte) (int, error)      { return len(b), nil } // an alert
func (hello) Close() error                     { return nil }
func (hello) LocalAddr() net.Addr              { return nil }
func (hello) RemoteAddr() net.Addr             { return nil }
func (hello) SetDeadline(time.Time) error      { return nil }
func (hello) SetReadDeadline(time.Time) error  { return nil }
func (hello) SetWriteDeadline(time.Time) error { return nil }
