package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// Bounds of a connection.
const (
	// connectionWindow in bytes is not a bound: with a smaller one, streams that are not read would stop all others.
	connectionWindow = 1 << 30
	// frameSize in bytes, from the side that opened the stream. That side holds a frame for each stream that sends, so a side that
	// asks for larger ones is refused.
	frameSize = 16 << 10
	// answerFrameSize in bytes, from the side that answers, which holds no frames.
	answerFrameSize = 64 << 10
	// MaxStreams of one connection.
	MaxStreams = 4096
	// maxHeader in bytes of a request or a response.
	maxHeader = 8 << 10
)

// Window in bytes is what one stream of a connection holds unread, at the side that reads. A stream needs the product of its
// bandwidth and delay.
type Window int32

// Windows of connections.
const (
	// Near is for connections within a cluster: 256 KiB are 2 Gbit/s at 1 ms.
	Near Window = 256 << 10
	// Far is for connections to a developer's machine: 2 MiB are 168 Mbit/s at 100 ms.
	Far Window = 2 << 20
)

// A side that hears nothing for a second asks for an answer, and gives the connection up after two more.
const (
	PingInterval = time.Second
	PingTimeout  = 2 * time.Second
	// writeTimeout is how long a write may make no progress.
	writeTimeout = 2 * PingTimeout
)

// handshakeTimeout bounds a handshake. It is long enough for a way around the world through a proxy.
const handshakeTimeout = 10 * time.Second

// Handshake finishes the handshake of a TLS connection, and closes it otherwise. Call it before Serve and NewPeer.
func Handshake(ctx context.Context, conn *tls.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return fmt.Errorf("agree on keys: %w", err)
	}
	return nil
}

// Serve answers the streams of a connection until it ends or ctx does. Requests get a context that ends with ctx. It is fastest on a TLS
// connection above one of Batch.
func Serve(ctx context.Context, conn net.Conn, h http.Handler, window Window) {
	serve(ctx, withBatch(conn), h, window)
}

func serve(ctx context.Context, conn net.Conn, h http.Handler, window Window) {
	server := &http2.Server{
		MaxConcurrentStreams: MaxStreams, MaxReadFrameSize: frameSize, MaxUploadBufferPerStream: int32(window), MaxUploadBufferPerConnection: connectionWindow,
		ReadIdleTimeout: PingInterval, PingTimeout: PingTimeout, WriteByteTimeout: writeTimeout,
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends ServeConn
	defer stop()
	server.ServeConn(conn, &http2.ServeConnOpts{
		Context: ctx, Handler: h,
		BaseConfig: &http.Server{ErrorLog: quiet(), MaxHeaderBytes: maxHeader, HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: int(window), MaxReceiveBufferPerConnection: connectionWindow, MaxReadFrameSize: frameSize,
		}},
	})
}

// Peer opens streams on a connection.
type Peer struct {
	conn net.Conn
	cc   *http2.ClientConn
	gone chan struct{}
}

// watched closes gone when the connection is closed.
type watched struct {
	net.Conn
	whole net.Conn // Conn reads from it
	once  func()
}

func (w watched) Close() error {
	w.once()
	return CloseNow(w.whole)
}

// NewPeer returns the opener of streams of a connection whose other end calls Serve.
func NewPeer(conn net.Conn, window Window) (*Peer, error) {
	gone := make(chan struct{})
	w := watched{&smallFrames{Conn: conn}, conn, sync.OnceFunc(func() { close(gone) })}
	t, err := http2.ConfigureTransports(&http.Transport{HTTP2: &http.HTTP2Config{
		MaxReceiveBufferPerStream: int(window), MaxReceiveBufferPerConnection: connectionWindow, MaxReadFrameSize: answerFrameSize,
	}})
	if err != nil {
		return nil, fmt.Errorf("begin HTTP/2: %w", err)
	}
	t.DisableCompression, t.AllowHTTP, t.StrictMaxConcurrentStreams, t.MaxHeaderListSize = true, true, true, maxHeader
	t.ReadIdleTimeout, t.PingTimeout, t.WriteByteTimeout = PingInterval, PingTimeout, writeTimeout
	cc, err := t.NewClientConn(w)
	if err != nil {
		return nil, fmt.Errorf("begin HTTP/2: %w", err)
	}
	return &Peer{conn: w, cc: cc, gone: gone}, nil
}

// Gone is closed when the connection has ended.
func (p *Peer) Gone() <-chan struct{} { return p.gone }

// Close ends the connection and all its streams. It does not wait for the other side.
func (p *Peer) Close() { _ = p.conn.Close() }

// Ping waits for an answer of the other side.
func (p *Peer) Ping(ctx context.Context) error { return p.cc.Ping(ctx) }

// Do sends a request and returns the response, whatever its status.
func (p *Peer) Do(r *http.Request) (*http.Response, error) { return p.cc.RoundTrip(r) }

// Sent returns when the connection has taken what its streams were about to send, or has ended.
func (p *Peer) Sent() {
	// State waits for its turn to write. A stream that ends needs up to two turns: one for its last bytes, and one for its reset. It begins
	// to wait for the second one at about the same time as this loop.
	for range 3 {
		_ = p.cc.State()
	}
}

// NewRequest makes a request for Do.
func NewRequest(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	return http.NewRequestWithContext(ctx, method, "https://sonde"+path, body)
}

// Refused is the answer of a side that opened no stream.
type Refused struct {
	Status int
	Reason string
}

func (r *Refused) Error() string {
	return fmt.Sprintf("refused with status %d: %s", r.Status, r.Reason)
}

// maxReason in bytes of a refusal.
const maxReason = 1 << 10

// Open opens a stream. The error is a *Refused if the other side declined.
func (p *Peer) Open(ctx context.Context, path string, header http.Header) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	body, in := io.Pipe()
	r, err := NewRequest(ctx, http.MethodPost, path, body)
	if err != nil {
		cancel()
		return nil, err
	}
	if header != nil {
		r.Header = header
	}
	response, err := p.cc.RoundTrip(r)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("open stream: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, maxReason))
		_ = response.Body.Close()
		cancel()
		return nil, &Refused{Status: response.StatusCode, Reason: cmp.Or(response.Header.Get(HeaderReason), strings.TrimSpace(string(reason)))}
	}
	return &Stream{frames: frameReader{r: response.Body}, in: in, body: response.Body, cancel: cancel}, nil
}

// Stream is the side that opened a stream.
type Stream struct {
	frames frameReader
	body   io.ReadCloser
	in     *io.PipeWriter
	cancel context.CancelFunc
}

// Read reads what the other side wrote. It returns io.EOF after the other side's CloseWrite, and io.ErrUnexpectedEOF if the
// stream ended without it.
func (s *Stream) Read(b []byte) (int, error) { return s.frames.Read(b) }

// Write writes to the other side.
func (s *Stream) Write(b []byte) (int, error) { return s.in.Write(b) }

// CloseWrite ends the direction to the other side.
func (s *Stream) CloseWrite() error { return s.in.Close() }

// Close ends both directions.
func (s *Stream) Close() error {
	_ = s.in.CloseWithError(errClosed)
	err := s.body.Close()
	s.cancel()
	return err
}

var errClosed = errors.New("the stream is closed")

// Accepted is the side that answers a stream.
type Accepted struct {
	body   io.ReadCloser
	frames frameWriter
}

// Accept answers a stream with the status 200.
func Accept(w http.ResponseWriter, r *http.Request) (*Accepted, error) {
	w.WriteHeader(http.StatusOK)
	c := http.NewResponseController(w)
	if err := c.Flush(); err != nil {
		return nil, fmt.Errorf("answer stream: %w", err)
	}
	return &Accepted{body: r.Body, frames: frameWriter{w: w, flush: c.Flush}}, nil
}

// Read reads what the opener wrote.
func (a *Accepted) Read(b []byte) (int, error) { return a.body.Read(b) }

// Write writes to the opener.
func (a *Accepted) Write(b []byte) (int, error) { return a.frames.Write(b) }

// CloseWrite ends the direction to the opener.
func (a *Accepted) CloseWrite() error { return a.frames.end() }

// Close ends reading. The stream ends when its handler returns.
func (a *Accepted) Close() error { return a.body.Close() }

// quiet drops the messages of net/http about connections that end.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
