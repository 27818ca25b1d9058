package intercept

import (
	"bytes"
	"strings"
	"sync/atomic"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Traffic is what this process has seen of one Pod. A carrier's report comes up to two seconds later, and none comes after the end.
type Traffic struct {
	requests, failed, bytes atomic.Int64
}

// counted is a stream whose requests and bytes are counted.
type counted struct {
	tunnel.Duplex

	traffic *Traffic
	// begun: a byte has come. http: the first line was that of an HTTP/1 request. Only Read uses them.
	begun, http bool
	// answered since the last request. A carrier sends a request only after the whole response to the one before.
	answered atomic.Bool
}

// Read implements io.Reader.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Duplex.Read(b)
	if n > 0 {
		c.count(b[:n])
	}
	return n, err
}

func (c *counted) count(b []byte) {
	c.traffic.bytes.Add(int64(len(b)))
	switch {
	case !c.begun:
		c.begun, c.http = true, beginsRequest(b)
	case !c.http || !c.answered.Load() || !beginsRequest(b): // the same request, or a connection that counts as one
		return
	}
	c.answered.Store(false)
	c.traffic.requests.Add(1)
}

// Write implements io.Writer.
func (c *counted) Write(b []byte) (int, error) {
	c.answered.Store(true)             // before the carrier has the response, and can send another request
	c.traffic.bytes.Add(int64(len(b))) // before anybody has the response, and can end the intercept
	n, err := c.Duplex.Write(b)
	c.traffic.bytes.Add(int64(n - len(b)))
	return n, err
}

// longLine is a length in bytes above which a request's first line may not have come as a whole.
const longLine = 1 << 10

// beginsRequest reports whether b begins with the first line of an HTTP/1 request. After 100 Continue or an upgrade, a connection has
// other bytes.
func beginsRequest(b []byte) bool {
	line, _, whole := bytes.Cut(b, []byte("\n"))
	method, rest, found := bytes.Cut(line, []byte(" "))
	inMethod := func(r rune) bool { return r == '-' || r == '_' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' }
	if !found || len(method) == 0 || strings.TrimLeftFunc(string(method), inMethod) != "" {
		return false
	}
	if !whole {
		return len(b) > longLine && bytes.HasPrefix(rest, []byte("/"))
	}
	return bytes.Contains(rest, []byte(" HTTP/1."))
}
