package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// pair returns a peer whose other end is served by h, over TLS on loopback.
func pair(tb testing.TB, h http.Handler) *Peer {
	tb.Helper()
	server, client := identity(tb), identity(tb)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan struct{})
	ctx, cancel := context.WithCancel(tb.Context())
	go func() {
		defer close(served)
		c, err := l.Accept()
		if err != nil {
			return
		}
		secure := tls.Server(Batch(c), server.ServerTLS(func(k PublicKey) bool { return k == client.Key }))
		if Handshake(ctx, secure) == nil {
			Serve(ctx, secure, h, Far)
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	secure := tls.Client(c, client.ClientTLS(server.Key))
	if err := Handshake(tb.Context(), secure); err != nil {
		tb.Fatal(err)
	}
	p, err := NewPeer(secure, Far)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.Close()
		cancel()
		_ = l.Close()
		<-served
	})
	return p
}

func identity(tb testing.TB) *Identity {
	tb.Helper()
	i, err := NewIdentity()
	if err != nil {
		tb.Fatal(err)
	}
	text, err := i.MarshalPEM()
	if err != nil {
		tb.Fatal(err)
	}
	again, err := ParseIdentity(text)
	if err != nil {
		tb.Fatal(err)
	}
	if again.Key != i.Key || len(i.Key) != 44 {
		tb.Fatalf("key %q, after a round trip %q", i.Key, again.Key)
	}
	return again
}

// echo answers a stream with what it reads, and ends its direction when the opener has ended the other.
func echo(w http.ResponseWriter, r *http.Request) {
	s, err := Accept(w, r)
	if err != nil {
		return
	}
	if _, err := io.Copy(s, s); err == nil {
		_ = s.CloseWrite()
	}
}

func TestStream(t *testing.T) {
	p := pair(t, http.HandlerFunc(echo))
	s, err := p.Open(t.Context(), PathOpen+"a", nil)
	if err != nil {
		t.Fatal(err)
	}
	sent := make([]byte, 3<<20+5)
	_, _ = rand.Read(sent)
	go func() {
		_, _ = s.Write(sent)
		_ = s.CloseWrite()
	}()
	got, err := io.ReadAll(s)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d came back: %v", len(got), len(sent), err)
	}
	if err := p.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestEndsBeforeItsOpener checks that the answering side can end its direction and read on.
func TestEndsBeforeItsOpener(t *testing.T) {
	read := make(chan string, 1)
	p := pair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := Accept(w, r)
		if err != nil {
			return
		}
		_, _ = s.Write([]byte("bye"))
		_ = s.CloseWrite()
		b, _ := io.ReadAll(s)
		read <- string(b)
	}))
	s, err := p.Open(t.Context(), PathOpen+"a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(s); string(b) != "bye" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	_, _ = s.Write([]byte("later"))
	_ = s.CloseWrite()
	if got := <-read; got != "later" {
		t.Errorf("the other side read %q", got)
	}
}

// TestCutStream checks that a stream that ends early is not taken for one that has ended.
func TestCutStream(t *testing.T) {
	p := pair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s, err := Accept(w, r); err == nil {
			_, _ = s.Write([]byte("half"))
		}
	}))
	s, err := p.Open(t.Context(), PathOpen+"a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(s); string(b) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read %q, %v", b, err)
	}
}

func TestRefused(t *testing.T) {
	p := pair(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "nothing listens there", http.StatusBadGateway)
	}))
	_, err := p.Open(t.Context(), PathOpen+"a", nil)
	var refused *Refused
	if !errors.As(err, &refused) || refused.Status != http.StatusBadGateway || refused.Reason != "nothing listens there" {
		t.Errorf("error %v", err)
	}
}

// TestWrongKey checks that neither side talks to a key that it does not know.
func TestWrongKey(t *testing.T) {
	a, b, c := identity(t), identity(t), identity(t)
	for name, tc := range map[string]struct {
		known, server PublicKey
	}{
		"client is not known": {known: c.Key, server: a.Key},
		"server is another":   {known: b.Key, server: c.Key},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			errs := make(chan error, 1)
			go func() {
				s := tls.Server(far, a.ServerTLS(func(k PublicKey) bool { return k == tc.known }))
				errs <- s.HandshakeContext(t.Context())
				_ = far.Close()
			}()
			client := tls.Client(near, b.ClientTLS(tc.server))
			err := client.HandshakeContext(t.Context())
			if err == nil { // TLS 1.3: the client's certificate is checked after its handshake
				_, err = client.Read(make([]byte, 1))
			}
			_ = near.Close()
			if server := <-errs; err == nil || server == nil {
				t.Errorf("client: %v, server: %v; want errors", err, server)
			}
		})
	}
}

// TestLostPeer checks that a side that stops answering is given up.
func TestLostPeer(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	p, err := NewPeer(near, Far)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Gone():
	case <-time.After(10 * (PingInterval + PingTimeout)):
		t.Error("the peer is not given up")
	}
}

func BenchmarkStream(b *testing.B) {
	p := pair(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s, err := Accept(w, r); err == nil {
			_, _ = io.Copy(io.Discard, s)
			_ = s.CloseWrite()
		}
	}))
	s, err := p.Open(b.Context(), PathOpen+"a", nil)
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, copyBuffer)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := s.Write(data); err != nil {
			b.Fatal(err)
		}
	}
	_ = s.CloseWrite()
	_, _ = io.ReadAll(s)
}
