package keeperapi

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDial: the kernel's buffer for what a keeper sends does not grow.
func TestDial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var size, lock int
	if cerr := raw.Control(func(fd uintptr) {
		if size, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil {
			lock, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BUF_LOCK)
		}
	}); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	const receive = 2 // SOCK_RCVBUF_LOCK of include/net/sock.h: the kernel does not choose the size
	if size != 2*readBuffer || lock&receive == 0 {
		t.Errorf("a buffer of %d bytes, locked %t, want %d that stay", size, lock&receive != 0, 2*readBuffer)
	}
}
