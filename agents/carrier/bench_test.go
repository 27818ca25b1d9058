package carrier

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// splicer is the plain proxy that the carrier is compared with.
func splicer(b *testing.B, to string) string {
	b.Helper()
	return serveTCP(b, func(down duplex) {
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer up.Close()
		go func() {
			_, _ = io.Copy(down, up)
			_ = down.Close()
		}()
		_, _ = io.Copy(up, down)
	})
}

// benchApp answers each head with the same bytes, as cheaply as a program can.
func benchApp(c duplex) {
	b := make([]byte, 4096)
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
	for seen := 0; ; {
		n, err := c.Read(b[seen:])
		if err != nil {
			return
		}
		seen += n
		if bytes.HasSuffix(b[:seen], []byte("\r\n\r\n")) {
			seen = 0
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}
}

// BenchmarkPassthrough measures a keep-alive request that does not match: without a proxy, through a plain splice proxy, and
// through the carrier. The three alternate in one run, so that they see the same machine.
func BenchmarkPassthrough(b *testing.B) {
	for name, app := range map[string]func(duplex){
		"bare": benchApp,
		"http": func(c duplex) { serveHTTP(c.(*net.TCPConn)) },
	} {
		b.Run(name, func(b *testing.B) {
			address := serveTCP(b, app)
			f := startWith(b, address, nil, DefaultConnections, byUser("alice", "alice"))
			ways := []string{"direct", "splice", "carrier"}
			var conns [3]*bufio.ReadWriter
			var took [3][]time.Duration
			for i, to := range []string{address, splicer(b, address), f.pod.listener.Addr().String()} {
				c, err := net.Dial("tcp", to)
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				conns[i] = bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
			}
			request := "GET /x HTTP/1.1\r\nHost: web\r\nUser-Agent: t\r\nX-A: " + strings.Repeat("a", 200) + "\r\n\r\n"
			for b.Loop() {
				for i, c := range conns {
					began := time.Now()
					_, _ = c.WriteString(request)
					if err := c.Flush(); err != nil {
						b.Fatal(err)
					}
					r, err := http.ReadResponse(c.Reader, nil)
					if err != nil {
						b.Fatal(ways[i], err)
					}
					_, _ = io.Copy(io.Discard, r.Body)
					_ = r.Body.Close()
					took[i] = append(took[i], time.Since(began))
				}
			}
			var p50 [3]time.Duration
			for i := range took {
				slices.Sort(took[i])
				p50[i] = took[i][len(took[i])/2]
				b.ReportMetric(float64(p50[i].Nanoseconds())/1000, ways[i]+"-p50-µs")
			}
			b.ReportMetric(float64(p50[2]-p50[0])/float64(p50[1]-p50[0]), "added-ratio")
		})
	}
}

// serveHTTP serves one connection with net/http.
func serveHTTP(c net.Conn) {
	serveHandler(c, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
}

func serveHandler(c net.Conn, h http.HandlerFunc) {
	l := &oneConn{conn: c, done: make(chan struct{})}
	s := &http.Server{Handler: h}
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(l.done)
		}
	}
	_ = s.Serve(l)
}

type oneConn struct {
	conn net.Conn
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

func BenchmarkHead(b *testing.B) {
	text := []byte("GET /api/v1/items?limit=10 HTTP/1.1\r\nHost: web.shop.svc:8080\r\nUser-Agent: curl/8.5\r\nAccept: */*\r\n" +
		"X-Request-Id: 1d0e3d2c-6a4f-4b63-8d65-1c7f4d8a2f11\r\nAuthorization: Bearer " + strings.Repeat("x", 300) + "\r\n\r\n")
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var h head
	for b.Loop() {
		var s headScanner
		n, err := s.find(text)
		if err != nil || n != len(text) {
			b.Fatal(n, err)
		}
		if err := h.parse(string(text[:n])); err != nil {
			b.Fatal(err)
		}
	}
}
