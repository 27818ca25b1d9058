package stowaway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestRefusalsOfHTTP2: HTTP/2's server refuses a request itself, with a body that the carrier does not take. That ends the connection,
// because nothing counts what the request holds.
func TestRefusalsOfHTTP2(t *testing.T) {
	for name, tc := range map[string]struct {
		header string
		times  int
		served bool
	}{
		"a header that is not valid": {header: "connection", times: 1},
		"a header that is too long":  {header: "sonde-peer", times: 10},
		"another request":            {header: "sonde-peer", times: 1, served: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newServerWorld(t)
			carrier := identity(t)
			w.set([]tunnel.Carrier{{Pod: "p", Name: "shop/web", Key: carrier.Key}})
			raw, err := net.Dial("tcp", w.peers)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = raw.Close() })
			secure := tls.Client(raw, carrier.ClientTLS(w.identity.Key))
			if err := tunnel.Handshake(t.Context(), secure); err != nil {
				t.Fatal(err)
			}
			var block bytes.Buffer
			encoder := hpack.NewEncoder(&block)
			header := [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", "sonde"}, {":path", tunnel.PathOpen + "a"}}
			for range tc.times {
				header = append(header, [2]string{tc.header, strings.Repeat("x", 1<<10)})
			}
			for _, f := range header {
				if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
					t.Fatal(err)
				}
			}
			out := http2.NewFramer(secure, secure)
			_, err = io.WriteString(secure, http2.ClientPreface)
			err = errors.Join(err, out.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}),
				out.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}))
			if err != nil {
				t.Fatal(err)
			}
			_ = raw.SetReadDeadline(time.Now().Add(10 * time.Second))
			for {
				f, err := out.ReadFrame()
				switch {
				case errors.Is(err, os.ErrDeadlineExceeded):
					t.Fatal("the connection stays")
				case err != nil && tc.served:
					t.Fatalf("the connection ends: %v", err)
				case err != nil:
					return
				}
				if f.Header().StreamID == 1 && f.Header().Flags.Has(http2.FlagHeadersEndStream) && tc.served {
					return
				}
				if ping, ok := f.(*http2.PingFrame); ok && !ping.IsAck() {
					_ = out.WritePing(true, ping.Data)
				}
			}
		})
	}
}

// stalled is a carrier that sends requests and takes no answers: its connection has no buffer, and it does not read. HTTP/2's server gives it
// up after four seconds.
type stalled struct {
	*http2.Framer

	conn   net.Conn
	own    *connection
	served chan struct{}
	next   uint32
}

func newStalled(t *testing.T, s *server, c *carrier) *stalled {
	t.Helper()
	near, far := net.Pipe()
	st := &stalled{Framer: http2.NewFramer(far, far), conn: far, own: &connection{}, served: make(chan struct{}), next: 1}
	go func() {
		defer close(st.served)
		tunnel.ServeStrictly(t.Context(), near, s.carrierHandler(c, st.own), tunnel.Near)
	}()
	t.Cleanup(func() { _ = far.Close() })
	begun := make(chan error, 1)
	go func() {
		_, err := io.WriteString(far, http2.ClientPreface)
		begun <- errors.Join(err, st.WriteSettings())
	}()
	for acknowledged := false; !acknowledged; {
		f, err := st.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		settings, ok := f.(*http2.SettingsFrame)
		acknowledged = ok && settings.IsAck()
	}
	if err := errors.Join(<-begun, st.WritePing(false, [8]byte{})); err != nil {
		t.Fatal(err)
	}
	// The answer fills the connection from its first byte. Before that, the server would write other answers with it.
	if _, err := io.ReadFull(far, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return st
}

// post sends the head of a request.
func (s *stalled) post(t *testing.T, path string) {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", "sonde"}, {":path", path}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.WriteHeaders(http2.HeadersFrameParam{StreamID: s.next, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	s.next += 2
}

// TestRefusalsThatAreNotTaken: a request that was refused counts until its carrier has taken the answer.
func TestRefusalsThatAreNotTaken(t *testing.T) {
	const requests = 100
	s := newServer(&Config{Log: slog.New(slog.DiscardHandler)})
	c := newStalled(t, s, newCarrier(tunnel.Carrier{Pod: "p", Name: "shop/web"}))
	for range requests {
		c.post(t, "/nothing")
	}
	counted := func(want int) func() bool { return func() bool { return int(c.own.requests.Load()) == want } }
	eventually(t, 3*time.Second, "all requests count", counted(requests))
	_ = c.conn.Close()
	<-c.served
	eventually(t, 3*time.Second, "no request counts after the connection", counted(0))
}
