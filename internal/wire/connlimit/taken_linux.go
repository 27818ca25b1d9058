package connlimit

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// firstLook and longestLook are the pauses of AwaitTaken.
const firstLook, longestLook = time.Millisecond, 100 * time.Millisecond

// AwaitTaken waits until the client has taken all that was written to the connection of a request, whose context this is. If that takes longer
// than patience, or ctx ends, it resets the connection: the kernel would keep these bytes for minutes, also after its end. With cgroup v2
// they count for the server's container.
func AwaitTaken(ctx context.Context, patience time.Duration) {
	c, ok := ctx.Value(key{}).(*connection)
	if !ok {
		return // the server of a test
	}
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := firstLook; untaken(tcp) > 0; pause = min(2*pause, longestLook) {
		if ctx.Err() != nil {
			_ = tcp.SetLinger(0) // an error means that it is closed
			_ = c.Close()
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// untaken returns the bytes of a connection that the other side has not acknowledged; 0 if the connection has ended.
func untaken(tcp *net.TCPConn) (n int) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.State == unix.BPF_TCP_CLOSE {
			return
		}
		if left, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			n = left
		}
	})
	if err != nil {
		return 0
	}
	return n
}
