package stowaway

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListen checks that the kernel does not let the buffers of a connection grow.
func TestListen(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	raw, err := accepted.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var size int
	if cerr := raw.Control(func(fd uintptr) { size, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	if size > 2*sendBuffer {
		t.Errorf("%d bytes to send, want %d at most", size, 2*sendBuffer)
	}
}
