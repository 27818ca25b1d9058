package decode

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// malformed stands for bytes that are not an address: the kernel refuses them, too.
const malformed = "malformed"

// Lengths of addresses (ip(7), ipv6(7), vsock(7)).
const (
	inetLen  = 8  // struct sockaddr_in without its padding
	inet6Len = 24 // struct sockaddr_in6 without its scope
	scopeLen = 28
	vsockLen = 12
)

// addressText returns a socket's address (struct sockaddr) as text: 10.0.0.1:443, [fe80::1%2]:80, unix:/path,
// unix:@abstract, unix: without a name, vsock:2:1024, and for other families the family's name.
func addressText(b []byte) string {
	if len(b) < 2 {
		return malformed
	}
	switch family := binary.NativeEndian.Uint16(b); family {
	case unix.AF_INET, unix.AF_INET6:
		at, ok := inetAddress(b)
		if !ok {
			return malformed
		}
		return at.String()
	case unix.AF_UNIX:
		return "unix:" + unixPath(b[2:])
	case unix.AF_VSOCK:
		if len(b) < vsockLen {
			return malformed
		}
		port, cid := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[8:])
		return "vsock:" + strconv.FormatUint(uint64(cid), 10) + ":" + strconv.FormatUint(uint64(port), 10)
	case unix.AF_UNSPEC:
		return "unspecified"
	default:
		return familyName(int(family))
	}
}

// inetAddress reads an address of IPv4 or IPv6.
func inetAddress(b []byte) (netip.AddrPort, bool) {
	if len(b) < inetLen {
		return netip.AddrPort{}, false
	}
	port := binary.BigEndian.Uint16(b[2:])
	if binary.NativeEndian.Uint16(b) == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), true
	}
	if len(b) < inet6Len {
		return netip.AddrPort{}, false
	}
	addr := netip.AddrFrom16([16]byte(b[8:24]))
	if len(b) >= scopeLen {
		if scope := binary.NativeEndian.Uint32(b[24:]); scope != 0 {
			addr = addr.WithZone(strconv.FormatUint(uint64(scope), 10))
		}
	}
	return netip.AddrPortFrom(addr, port), true
}

// unixPath reads sun_path (unix(7)): a path ends with its zero, an abstract name begins with one and has any byte.
func unixPath(b []byte) string {
	switch {
	case len(b) == 0:
		return ""
	case b[0] == 0 && len(b) == 1:
		return ""
	case b[0] == 0:
		return "@" + string(b[1:])
	}
	return string(kernel.CString(b))
}

// familyName names a family without ports.
func familyName(family int) string {
	switch family {
	case unix.AF_UNIX:
		return "unix"
	case unix.AF_NETLINK:
		return "netlink"
	case unix.AF_PACKET:
		return "packet"
	case unix.AF_VSOCK:
		return "vsock"
	case unix.AF_ALG:
		return "alg"
	}
	return "family " + strconv.Itoa(family)
}

// socketKind names the sort of socket that socket(2) makes: its transport, or its family if that has none.
func socketKind(family, typ, protocol int) string {
	if family != unix.AF_INET && family != unix.AF_INET6 {
		return familyName(family)
	}
	const typeBits = 0xf // the others are flags
	switch protocol {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return "icmp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	case unix.IPPROTO_MPTCP:
		return "mptcp"
	case unix.IPPROTO_IP:
		switch typ & typeBits {
		case unix.SOCK_STREAM:
			return "tcp"
		case unix.SOCK_DGRAM:
			return "udp"
		}
	}
	return "raw"
}

// socketName names a socket by its address: tcp:10.0.0.1:443, unix:/path. current is its name so far; empty if unknown.
func socketName(current string, address []byte) string {
	if len(address) < 2 {
		return current
	}
	kind, _, _ := strings.Cut(current, ":")
	if kind == "" {
		kind = "socket"
	}
	switch binary.NativeEndian.Uint16(address) {
	case unix.AF_INET, unix.AF_INET6:
		at, ok := inetAddress(address)
		if !ok {
			return current
		}
		return kind + ":" + plainAddress(at)
	case unix.AF_UNSPEC: // a connection is dissolved
		return kind
	case unix.AF_UNIX:
		if unixPath(address[2:]) == "" {
			return current
		}
	}
	return addressText(address)
}

// plainAddress formats an IPv4-mapped IPv6 address as IPv4.
func plainAddress(at netip.AddrPort) string {
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
}
