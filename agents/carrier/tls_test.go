package carrier

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
)

// TestServerName checks who gets a TLS connection, and that the handshake is with the one that got it.
func TestServerName(t *testing.T) {
	shop := matching("shop", 1, httpmatch.Match{ServerName: new(exact("shop.example"))})
	all := matching("all", 0, httpmatch.Match{ServerName: new(regex(`.*\.example`))})
	f := start(t, tlsServer(t, "app"), func(id string, s duplex) { tlsServer(t, id)(s) }, shop, all, byUser("http", "alice"))
	dial := func(name string, split bool) string {
		t.Helper()
		var conn net.Conn = f.dial(t)
		if split {
			conn = byteByByte{conn}
		}
		c := tls.Client(conn, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		defer c.Close()
		if err := c.Handshake(); err != nil {
			t.Errorf("%q: %v", name, err)
			return ""
		}
		b, _ := io.ReadAll(c)
		return string(b)
	}
	for name, want := range map[string]string{
		"shop.example": "shop", "SHOP.example": "shop", "other.example": "all", "shop.example.org": "app", "": "app", "127.0.0.1": "app",
	} {
		for _, split := range []bool{false, true} {
			if got := dial(name, split); got != want {
				t.Errorf("%q, byte by byte %t: %q answers, want %q", name, split, got, want)
			}
		}
	}
	if r := f.newReport().Routes; r["shop"].Matched != 4 || r["all"].Overlaps != 4 || r["all"].Matched != 2 || r["http"].Matched != 0 {
		t.Errorf("counters %+v", r)
	}
	// A hello that ends too early.
	c := f.dial(t)
	_, _ = c.Write([]byte{recordHandshake, 3, 1, 2, 0, 1})
	_ = c.CloseWrite()
	if got, _ := readAll(c); got != "" {
		t.Errorf("half a hello is answered with %q", got)
	}
	await(t, "the app's connections", func() bool { return f.newReport().Routes["shop"].Passed == 7 })

	f.setRoutes(shop, whole("rest"))
	f.awaitRoutes(t, 2)
	if got := dial("other.example", false); got != "rest" {
		t.Errorf("%q answers what no match takes", got)
	}
	f.setRoutes(dead(shop), whole("rest"))
	await(t, "the client's end", func() bool { return !f.routing.Load().byID["shop"].live })
	if got := dial("shop.example", false); got != "app" {
		t.Errorf("%q answers for a client that is lost", got)
	}
}

// byteByByte sends each byte on its own.
type byteByByte struct{ net.Conn }

func (b byteByByte) Write(data []byte) (int, error) {
	for i := range data {
		if _, err := b.Conn.Write(data[i : i+1]); err != nil {
			return i, err
		}
		time.Sleep(10 * time.Microsecond)
	}
	return len(data), nil
}

// tlsServer says its name inside TLS.
func tlsServer(t *testing.T, name string) func(duplex) {
	t.Helper()
	certificate := newIdentity(t).ServerTLS(nil).Certificates
	return func(d duplex) {
		c := tls.Server(asConn{d}, &tls.Config{Certificates: certificate})
		_, _ = io.WriteString(c, name)
		_ = c.Close()
		_, _ = io.Copy(io.Discard, d)
	}
}

// asConn is a stream without addresses and deadlines.
type asConn struct{ duplex }

func (asConn) LocalAddr() net.Addr              { return nil }
func (asConn) RemoteAddr() net.Addr             { return nil }
func (asConn) SetDeadline(time.Time) error      { return nil }
func (asConn) SetReadDeadline(time.Time) error  { return nil }
func (asConn) SetWriteDeadline(time.Time) error { return nil }
func (a asConn) Close() error                   { return a.CloseWrite() }

// FuzzServerName checks that more bytes change no complete answer.
func FuzzServerName(f *testing.F) {
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: "shop.example", InsecureSkipVerify: true}).Handshake()
	}()
	b := make([]byte, 4<<10)
	n, err := far.Read(b)
	if err != nil {
		f.Fatal(err)
	}
	_ = far.Close()
	if name, complete := serverName(b[:n]); name != "shop.example" || !complete {
		f.Fatalf("%q, %t", name, complete)
	}
	f.Add(b[:n], uint16(n/2))
	f.Add([]byte{recordHandshake, 3, 1, 0, 0}, uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		name, complete := serverName(b)
		before, was := serverName(b[:min(int(at), len(b))])
		if was && (!complete || name != before) {
			t.Errorf("%q, then %q, %t", before, name, complete)
		}
		if !complete && name != "" || strings.ContainsAny(name, "\x00\n ") {
			t.Errorf("name %q, complete %t", name, complete)
		}
	})
}
