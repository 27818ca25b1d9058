package tunnel

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// CutAfter reports whether the peer of a TCP socket has reset the connection without an end of its direction before. n bytes were read, which
// are all that came. A write may have taken the error, and a read then gets an end, as after a regular one. The kernel counts a regular end
// as one more byte (tcp_rcv_nxt_update).
func CutAfter(s syscall.Conn, n uint64) bool {
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	cut := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		cut = err == nil && info.State == unix.BPF_TCP_CLOSE && info.Bytes_received == n
	})
	return err == nil && cut
}
