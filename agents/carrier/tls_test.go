package carrier

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"slices"
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
		"a\x00.example": "app", "a b.example": "app", "ä.example": "app",
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
	await(t, "the app's connections", func() bool { return f.newReport().Routes["shop"].Passed == 13 })

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

// TestHelloOfManyRecords checks that a name is found in a ClientHello that is cut into records anywhere, even inside its header.
func TestHelloOfManyRecords(t *testing.T) {
	whole := newHello(t)
	for size := range 40 {
		cut := records(whole[5:], size+1)
		for n := range cut {
			if _, decided := clientHello(cut[:n]); decided {
				t.Fatalf("records of %d bytes: decided after %d bytes of %d", size+1, n, len(cut))
			}
		}
		hello, decided := clientHello(append(cut, "more"...))
		if name := serverName(hello); !decided || name != "shop.example" || len(hello) != len(cut) {
			t.Fatalf("records of %d bytes: %q, %t, %d bytes of %d", size+1, name, decided, len(hello), len(cut))
		}
	}
}

// newHello returns the record with which a client of shop.example begins.
func newHello(tb testing.TB) []byte {
	tb.Helper()
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: "shop.example", InsecureSkipVerify: true}).Handshake()
	}()
	b := make([]byte, 4<<10)
	n, err := far.Read(b)
	if err != nil {
		tb.Fatal(err)
	}
	_ = far.Close()
	return b[:n]
}

// records cuts a message into records of size bytes.
func records(message []byte, size int) []byte {
	var b []byte
	for part := range slices.Chunk(message, size) {
		b = append(b, recordHandshake, 3, 1)
		b = binary.BigEndian.AppendUint16(b, uint16(len(part)))
		b = append(b, part...)
	}
	return b
}

// FuzzServerName checks that a decision stays the same when more bytes arrive.
func FuzzServerName(f *testing.F) {
	whole := newHello(f)
	f.Add(whole, uint16(len(whole)/2))
	f.Add(records(whole[5:], 100), uint16(200))
	f.Add(bytes.Replace(whole, []byte("shop.example"), []byte("sh\x00\x02exam le"), 1), uint16(0))
	f.Add([]byte{recordHandshake, 3, 1, 0, 0}, uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		hello, decided := clientHello(b)
		before, was := clientHello(b[:min(int(at), len(b))])
		if was && (!decided || !bytes.Equal(before, hello)) {
			t.Errorf("%q, then %q, %t", before, hello, decided)
		}
		if !decided && hello != nil || !bytes.HasPrefix(b, hello) {
			t.Errorf("%q of %q, decided %t", hello, b, decided)
		}
		if name := serverName(hello); strings.ContainsAny(name, "\x00\n ") {
			t.Errorf("name %q", name)
		}
	})
}
