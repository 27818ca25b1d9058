package tunnel

import (
	"context"
	"errors"
	"net"
	"net/http"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// ServeStrictly is Serve for another side that may have been taken over. HTTP/2's server itself answers requests whose header is not valid
// or too long. h never sees these, and the other side could keep them for ever, because the answer has a body that it need not take. So
// such an answer ends the connection. h must refuse requests without a body.
func ServeStrictly(ctx context.Context, conn net.Conn, h http.Handler, window Window) {
	serve(ctx, newStrict(withBatch(conn)), h, window)
}

// errBody ends a connection.
var errBody = errors.New("a request was refused with a body")

// hpackTable in bytes is what HTTP/2's server uses at most for the compression of headers.
const hpackTable = 4 << 10

// strict is a server's connection whose writes fail when a response is a refusal with a body.
type strict struct {
	net.Conn
	frames frames
	// block is the header of a response so far; last: the response has nothing else.
	block   []byte
	last    bool
	decoder *hpack.Decoder
	status  string
}

func newStrict(conn net.Conn) *strict {
	s := &strict{Conn: conn}
	s.decoder = hpack.NewDecoder(hpackTable, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			s.status = f.Value
		}
	})
	return s
}

// Write implements net.Conn. HTTP/2's server closes the connection after an error.
func (s *strict) Write(b []byte) (int, error) {
	if !s.frames.follow(b, s.payload) {
		return 0, errBody
	}
	return s.Conn.Write(b)
}

func (s *strict) payload(part []byte, last bool) bool {
	switch s.frames.kind() {
	case http2.FrameHeaders:
		s.last = s.frames.has(http2.FlagHeadersEndStream)
	case http2.FrameContinuation:
	default:
		return true
	}
	s.block = append(s.block, part...)
	if !last || !s.frames.has(http2.FlagHeadersEndHeaders) { // a continuation has the same flag
		return true
	}
	s.status = ""
	_, err := s.decoder.Write(s.block)
	err = errors.Join(err, s.decoder.Close())
	s.block = s.block[:0]
	return err == nil && (s.status < "400" || s.last)
}
