package stowaway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// untaken is how long the kernel keeps what the other side of a connection does not take, also after Stowaway has closed it. It is as long
// as Stowaway waits for an answer at most. By default it is minutes, and a machine that connects again and again could fill the memory.
const untaken = 10 * time.Second

// Listen opens a port of Stowaway, like ":8080". What it accepts has the same timeout.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) (err error) {
		controlled := socket.Control(func(fd uintptr) {
			err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(untaken.Milliseconds())))
		})
		return errors.Join(controlled, err)
	}}
	c.SetMultipathTCP(false) // it has no TCP_USER_TIMEOUT
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}
