package stowaway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sendBuffer of each connection in bytes; the kernel doubles it. Without it, the kernel keeps up to 4 MiB (tcp_wmem) for another side that
// takes little. With cgroup v2 that counts for Stowaway's container. 128 KiB are 2 Gbit/s at 0.5 ms, and all connections are within a cluster.
const sendBuffer = 128 << 10

// Listen opens a port of Stowaway, like ":8080".
func Listen(ctx context.Context, address string) (net.Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) (err error) {
		controlled := socket.Control(func(fd uintptr) { // what it accepts has the same
			err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer))
		})
		return errors.Join(controlled, err)
	}}
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}
