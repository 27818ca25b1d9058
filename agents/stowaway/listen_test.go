package stowaway

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListen checks that the kernel does not keep for long what the other side of a connection does not take.
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
	var timeout int
	if cerr := raw.Control(func(fd uintptr) { timeout, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	if timeout != int(untaken.Milliseconds()) {
		t.Errorf("the kernel gives up after %d ms, want %s", timeout, untaken)
	}
}
