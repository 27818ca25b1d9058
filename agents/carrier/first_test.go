package carrier

import (
	"io"
	"net/netip"
	"testing"
)

// TestClientSpeaksFirst: the developer's process may send before its peer's bytes come, as servers of HTTP/2 and of databases do. The
// carrier must not take its bytes for a response to another's request, and reset the connection.
func TestClientSpeaksFirst(t *testing.T) {
	const banner = "220 ready\r\n"
	f := start(t, nil, nil, whole("a"))
	peer, down := tcpPair(t)
	near, far := tcpPair(t)
	c := newConn(f.Carrier, down, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), f.port))
	_, _ = io.WriteString(near, banner)
	if !c.adopt(&upstream{duplex: far, route: c.routes().liveRest()}, true) {
		t.Fatal("the carrier closed the connection")
	}
	back := make([]byte, len(banner))
	if n, err := io.ReadFull(peer, back); string(back[:n]) != banner {
		t.Errorf("%q comes back, %v", back[:n], err)
	}
	_ = near.Close()
	c.close(false)
	c.wg.Wait()
}
