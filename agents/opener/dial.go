package opener

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
)

const (
	// portRange is the kernel's range of ports for connections, of the network namespace of the reading thread.
	portRange = "/proc/sys/net/ipv4/ip_local_port_range"
	// The kernel's default range.
	defaultFirstPort, defaultLastPort = 32768, 60999
	// dialAttempts bounds the ports that one dial tries. Most are free, unless the app has most of the range.
	dialAttempts = 64
)

var (
	loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	loopback6 = netip.IPv6Loopback()
)

// dialer connects to the app from the address that it connects to. So it reaches only the Pod's own addresses: the kernel binds no
// socket to others. The source is not loopback, which some apps trust, unless the connection was for loopback.
type dialer struct {
	socket               func(family int) (int, error)
	except, endException func(source netip.AddrPort) error
	// listeners are the carrier's own, which a connection must not reach: the carrier would dial for ever.
	listeners           []netip.AddrPort
	firstPort, lastPort uint16
}

// readPorts reads the range of ports for connections.
func (d *dialer) readPorts(ns *os.File) error {
	d.firstPort, d.lastPort = defaultFirstPort, defaultLastPort
	var b []byte
	err := links.InNetNS(int(ns.Fd()), func() (err error) {
		b, err = os.ReadFile(portRange)
		return err
	})
	if err != nil {
		return fmt.Errorf("read range of ports: %w", err)
	}
	fields := bytes.Fields(b)
	if len(fields) != 2 {
		return fmt.Errorf("read range of ports: %q is not a range", b)
	}
	first, ferr := strconv.ParseUint(string(fields[0]), 10, 16)
	last, lerr := strconv.ParseUint(string(fields[1]), 10, 16)
	if err := errors.Join(ferr, lerr); err != nil || first > last || first == 0 {
		return fmt.Errorf("read range of ports: %q is not a range", b)
	}
	d.firstPort, d.lastPort = uint16(first), uint16(last)
	return nil
}

// dial returns a connected socket.
//
// It chooses the source port itself. The kernel would choose one that no connection has, and so run out of ports when the app
// gets some hundred connections per second: each keeps its port for a minute after its end (TIME_WAIT).
func (d *dialer) dial(ctx context.Context, to netip.AddrPort, scope uint32) (*os.File, error) {
	if slices.ContainsFunc(d.listeners, func(l netip.AddrPort) bool { return l.Port() == to.Port() && l.Addr() == to.Addr() }) {
		return nil, os.NewSyscallError("connect", unix.ECONNREFUSED)
	}
	var err error
	for range dialAttempts {
		var f *os.File
		port := d.firstPort + uint16(rand.N(int(d.lastPort-d.firstPort)+1))
		if port == to.Port() { // it would connect to itself
			err = unix.EADDRINUSE
			continue
		}
		f, err = d.dialFrom(ctx, netip.AddrPortFrom(to.Addr(), port), to, scope)
		if !isPortTaken(err) {
			return f, err
		}
	}
	return nil, err
}

// isPortTaken reports whether another port may help. The kernel also returns EADDRNOTAVAIL if there is no such source address: then
// all attempts fail.
func isPortTaken(err error) bool {
	return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, ebpf.ErrKeyExist)
}

// dialFrom connects from a source, which is exempt from steering until the connection is established: after that the kernel
// does not look for a listener.
func (d *dialer) dialFrom(ctx context.Context, from, to netip.AddrPort, scope uint32) (connection *os.File, err error) {
	family := unix.AF_INET
	if from.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := d.socket(family)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "connection") // the poller takes it, because it does not block
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	// Connections to other addresses may have the same port.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, sockaddrOf(from, scope)); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err := d.except(from); err != nil {
		return nil, err
	}
	err = connect(ctx, f, fd, sockaddrOf(to, scope))
	if err := errors.Join(err, d.endException(from)); err != nil {
		return nil, err
	}
	return f, nil
}

// connect connects a socket that does not block.
func connect(ctx context.Context, f *os.File, fd int, to unix.Sockaddr) error {
	err := unix.Connect(fd, to)
	if !errors.Is(err, unix.EINPROGRESS) {
		return os.NewSyscallError("connect", err)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var result error
	err = conn.Write(func(fd uintptr) bool {
		var done bool
		done, result = connected(int(fd))
		return done
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return os.NewSyscallError("connect", syscall.ETIMEDOUT)
	case err != nil:
		return err
	}
	return os.NewSyscallError("connect", result)
}

// connected reports whether connecting has ended, and how.
func connected(fd int) (bool, error) {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return true, err
	}
	if n != 0 {
		return true, syscall.Errno(n)
	}
	_, err = unix.Getpeername(fd)
	return err == nil, nil // the poller may wake too early
}

func sockaddrOf(a netip.AddrPort, scope uint32) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16(), ZoneId: scope}
}

func addrPortOf(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	default:
		return netip.AddrPort{}
	}
}
