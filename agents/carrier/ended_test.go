package carrier

import (
	"io"
	"net"
	"net/netip"
	"testing"
)

// lateWrites returns from a write after something has happened.
type lateWrites struct {
	duplex
	wait func()
}

func (w lateWrites) Write(b []byte) (int, error) {
	n, err := w.duplex.Write(b)
	w.wait()
	return n, err
}

// TestPartOfAHeadBeforeTheEnd ends an app in the middle of a head. The peer gets that part at any moment of the exchange.
func TestPartOfAHeadBeforeTheEnd(t *testing.T) {
	const part = "HTTP/1.1 200 O"
	for name, tt := range map[string]struct {
		send, then string
		app        []answer
		// wait for the end before the carrier knows that its request was taken.
		late bool
	}{
		"while the request is sent": {send: get, app: []answer{{after: "\r\n\r\n", send: part, end: "close"}}, late: true},
		"after a malformed chunk": {
			send: "POST / HTTP/1.1\r\nHost: web\r\nTransfer-Encoding: chunked\r\n\r\n", then: "zz\r\n",
			app: []answer{{after: "\r\n\r\n", send: part}, {after: "zz", end: "close"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, scripted(&recorder{}, tt.app), nil, byUser("alice", "alice"))
			peer, down := tcpPair(t)
			c := newConn(f.Carrier, down, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), f.port))
			tcp, err := f.pod.Dial(t.Context(), c.to)
			if err != nil {
				t.Fatal(err)
			}
			app := &upstream{duplex: tcp, tcp: tcp}
			holds := func(condition func() bool) func() bool {
				return func() bool {
					c.mu.Lock()
					defer c.mu.Unlock()
					return condition()
				}
			}
			if tt.late {
				app.duplex = lateWrites{tcp, func() { await(t, "the end of the app", holds(func() bool { return app.ended })) }}
			}
			c.adopt(app, false)
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.serve()
			}()
			_, _ = io.WriteString(peer, tt.send)
			if tt.then != "" {
				await(t, "the part of a head", holds(func() bool { return c.exchange.begun }))
				_, _ = io.WriteString(peer, tt.then)
			}
			if got, _ := readAll(peer); got != part {
				t.Errorf("the peer received %q, want %q", got, part)
			}
			_ = peer.Close()
			<-done
		})
	}
}

// tcpPair is a connection and its other end.
func tcpPair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l := listen(t)
	n, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = n.Close(), f.Close() })
	return n.(*net.TCPConn), f.(*net.TCPConn)
}
