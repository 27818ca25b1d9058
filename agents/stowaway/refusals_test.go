package stowaway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
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
