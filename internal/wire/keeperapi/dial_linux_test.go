package keeperapi

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/account"
)

// TestDial: the kernel's buffer for what a keeper sends does not grow. It is small for all but files.
func TestDial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	errDialed := errors.New("dialed")
	for name, tc := range map[string]struct {
		call func(context.Context, *Client) error
		want int // bytes
	}{
		"Watch": {func(ctx context.Context, c *Client) error {
			return c.Watch(ctx, address, func(account.Account) error { return nil })
		}, shortReadBuffer},
		"Progress": {func(ctx context.Context, c *Client) error { _, err := c.Progress(ctx, address); return err }, shortReadBuffer},
		"Stop":     {func(ctx context.Context, c *Client) error { return c.Stop(ctx, address, "a reason") }, shortReadBuffer},
		"File":     {func(ctx context.Context, c *Client) error { return opened(c.File(ctx, address, "a.pcapng", "")) }, readBuffer},
		"Live": {func(ctx context.Context, c *Client) error {
			return opened(c.Live(ctx, address, "a.jsonl", LiveQuery{}))
		}, readBuffer},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(&tls.Config{MinVersion: tls.VersionTLS13})
			size := 0
			for _, one := range []*http.Client{c.files, c.short} {
				transport := one.Transport.(*http.Transport)
				dial := transport.DialContext
				transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := dial(ctx, network, address)
					if err != nil {
						return nil, err
					}
					defer conn.Close()
					size = lockedBuffer(t, conn.(*net.TCPConn))
					return nil, errDialed
				}
			}
			if err := tc.call(t.Context(), c); !errors.Is(err, errDialed) {
				t.Fatal(err)
			}
			if size != 2*tc.want {
				t.Errorf("a buffer of %d bytes, want %d that stay", size, 2*tc.want)
			}
		})
	}
}

func opened(r *http.Response, err error) error {
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return err
}

// lockedBuffer returns the size of a socket's buffer for receiving in bytes, or 0 if the kernel chooses it.
func lockedBuffer(t *testing.T, conn *net.TCPConn) (size int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var lock int
	if cerr := raw.Control(func(fd uintptr) {
		if size, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil {
			lock, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BUF_LOCK)
		}
	}); cerr != nil || err != nil {
		t.Error(cerr, err)
	}
	const receive = 2 // SOCK_RCVBUF_LOCK of include/net/sock.h: the kernel does not choose the size
	if lock&receive == 0 {
		return 0
	}
	return size
}
