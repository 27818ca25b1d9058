package carrier

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// prefaceLine begins the preface that is not like a request line of HTTP/1.
	prefaceLine = "PRI * HTTP/2.0\r\n"
	// greetAfter is how long the peer may take to send a request on its own. After it, it may be waiting for the server's
	// settings, as gRPC's client does.
	greetAfter = 30 * time.Millisecond
	// maxAgentBytes of a connection are looked at before its first request is complete.
	maxAgentBytes = 16 << 10
	maxAgentField = 4 << 10
)

// Frames of HTTP/2 (RFC 9113, section 6.5): settings without a value, and the acknowledgement of settings.
var (
	emptySettings = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	settingsAck   = []byte{0, 0, 0, 4, 1, 0, 0, 0, 0}
)

// firstHTTP2 finds out whether a connection of HTTP/2 is a probe of the kubelet, and pins it to where it belongs.
func (c *conn) firstHTTP2(r *route) {
	var probe bool
	if probe, c.greeted = c.http2Probe(); probe {
		r = nil
	} else {
		c.routes().countBehind(false)
	}
	c.pin(r)
}

// http2Probe reads until the first request is complete. It reports whether the request is a probe's, and whether the carrier has
// sent settings.
func (c *conn) http2Probe() (probe, greeted bool) {
	_ = c.down.SetReadDeadline(time.Now().Add(greetAfter))
	defer func() { _ = c.down.SetReadDeadline(time.Time{}) }()
	for {
		agent, complete := firstAgent(c.in.bytes())
		if complete || c.in.len() >= maxAgentBytes {
			return ofKubelet(agent), greeted
		}
		err := c.in.fill(c)
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && !greeted:
			if _, err := c.down.Write(emptySettings); err != nil {
				return false, greeted
			}
			greeted = true
			_ = c.down.SetReadDeadline(time.Now().Add(silence))
		default: // the end, or a peer that only listens
			return false, greeted
		}
	}
}

// firstAgent returns the User-Agent of the first request. It is complete if the request's head is, or can never be.
func firstAgent(b []byte) (agent string, complete bool) {
	if len(b) < len(http2.ClientPreface) {
		return "", http2.ClientPreface[:len(b)] != string(b)
	}
	b, ok := bytes.CutPrefix(b, []byte(http2.ClientPreface))
	if !ok {
		return "", true
	}
	frames := http2.NewFramer(io.Discard, bytes.NewReader(b))
	frames.SetMaxReadFrameSize(maxAgentBytes)
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	frames.MaxHeaderListSize = maxAgentField
	for {
		f, err := frames.ReadFrame()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return "", false
		case err != nil:
			return "", true
		}
		head, ok := f.(*http2.MetaHeadersFrame)
		if !ok {
			continue
		}
		for _, field := range head.RegularFields() {
			if field.Name == "user-agent" {
				return field.Value, true
			}
		}
		return "", true
	}
}

// relayUntilAck relays frames up to the acknowledgement of the carrier's settings. It does not relay the acknowledgement: the server would
// take it for one of its own settings. If the peer ends before, the rest of its bytes stays in c.in.
func (c *conn) relayUntilAck(up io.Writer) error {
	next := len(http2.ClientPreface)
	for {
		b := c.in.bytes()
		at, found := findAck(b, next)
		whole := min(at, len(b))
		if whole > 0 {
			if _, err := up.Write(b[:whole]); err != nil {
				return err //nolint:wrapcheck // it only ends the connection
			}
		}
		c.in.skip(whole)
		next = at - whole
		if found {
			c.in.skip(len(settingsAck))
			return nil
		}
		switch err := c.in.fill(c); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err // the kernel reports a reset once: the next read would return a regular end
		}
	}
}

// findAck returns where the first acknowledgement of settings begins, or else the first frame whose header is not complete. The first frame
// begins at a byte that may lie beyond b, as may the result.
func findAck(b []byte, at int) (ack int, found bool) {
	const header = 9
	for at+header <= len(b) {
		if bytes.Equal(b[at:at+header], settingsAck) {
			return at, true
		}
		at += header + int(binary.BigEndian.Uint32(b[at:])>>8)
	}
	return at, false
}
