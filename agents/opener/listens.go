package opener

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
)

// Messages in which the kernel lists sockets (sock_diag(7)).
const (
	diagHeader  = 16              // struct nlmsghdr
	diagRequest = diagHeader + 56 // and struct inet_diag_req_v2
	diagAnswer  = diagHeader + 24 // and struct inet_diag_msg up to the source address
	diagBuffer  = 8 << 10         // for some answers
	diagTimeout = 1               // in seconds
	stateListen = uint32(1) << 10 // TCP_LISTEN, as a set of states
	diagDump    = unix.NLM_F_REQUEST | unix.NLM_F_DUMP
)

// listens reports whether a socket other than these listens on a TCP port of a network namespace, at any address.
func listens(ns *os.File, port uint16, except []netip.AddrPort) (is bool, err error) {
	err = links.InNetNS(int(ns.Fd()), func() error {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			if is, err = listensIn(family, port, except); is || err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("find out who listens on port %d: %w", port, err)
	}
	return is, nil
}

// listensIn is listens for one family, in the network namespace of this thread.
func listensIn(family uint8, port uint16, except []netip.AddrPort) (bool, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: diagTimeout}); err != nil {
		return false, os.NewSyscallError("setsockopt", err)
	}
	request := make([]byte, diagRequest)
	binary.NativeEndian.PutUint32(request, diagRequest)
	binary.NativeEndian.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(request[6:], diagDump)
	query := request[diagHeader:]
	query[0], query[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(query[4:], stateListen)
	binary.BigEndian.PutUint16(query[8:], port)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, os.NewSyscallError("sendto", err)
	}
	buffer := make([]byte, diagBuffer)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return false, os.NewSyscallError("recvfrom", err)
		}
		if found, done, err := findListener(buffer[:n], except); found || done || err != nil {
			return found, err
		}
	}
}

var errDiag = errors.New("the kernel's list of sockets makes no sense")

// findListener looks for a socket other than these in a part of the kernel's answer. done: it was the last part.
func findListener(b []byte, except []netip.AddrPort) (found, done bool, err error) {
	for len(b) >= diagHeader {
		size := int(binary.NativeEndian.Uint32(b))
		if size < diagHeader || size > len(b) {
			return false, false, errDiag
		}
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return false, true, nil
		case unix.NLMSG_ERROR:
			if size < diagHeader+4 {
				return false, false, errDiag
			}
			return false, false, unix.Errno(-int32(binary.NativeEndian.Uint32(b[diagHeader:]))) //nolint:gosec // the kernel's negative errno
		case unix.SOCK_DIAG_BY_FAMILY:
			if size < diagAnswer {
				return false, false, errDiag
			}
			if !slices.Contains(except, listenerOf(b[diagHeader:])) {
				return true, false, nil
			}
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, false, nil
}

// listenerOf reads the address and the port of a struct inet_diag_msg.
func listenerOf(b []byte) netip.AddrPort {
	address := netip.AddrFrom16([16]byte(b[8:]))
	if b[0] == unix.AF_INET {
		address = netip.AddrFrom4([4]byte(b[8:]))
	}
	return netip.AddrPortFrom(address, binary.BigEndian.Uint16(b[4:]))
}
