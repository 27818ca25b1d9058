package connlimit

import (
	"net"
	"testing"
	"time"
)

// TestWriteBuffer: the kernel takes little for another side that reads nothing.
func TestWriteBuffer(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(inner, 1)
	defer l.Close()
	d, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const window = 64 << 10
	if err := d.(*net.TCPConn).SetReadBuffer(window / 2); err != nil { // Linux doubles it
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	taken := 0
	for b := make([]byte, 4<<10); ; {
		if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Write(b)
		if taken += n; err != nil {
			break
		}
	}
	if most := 2*WriteBuffer + window + 64<<10; taken > most {
		t.Errorf("the kernel took %d bytes, want %d at most", taken, most)
	}
}
