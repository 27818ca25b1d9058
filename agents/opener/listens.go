package opener

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
)

// Messages in which the kernel lists sockets (sock_diag(7)).
const (
	diagRequest = 56              // struct inet_diag_req_v2
	diagAnswer  = 44              // struct inet_diag_msg up to the interface
	diagDevice  = 40              // the interface that the socket is bound to (SO_BINDTODEVICE); 0 for none
	stateListen = uint32(1) << 10 // TCP_LISTEN, as a set of states
)

// listens reports whether a socket other than these listens on a TCP port of a network namespace, at any address. A socket that is bound to
// an interface does not count: connections of the carrier come through lo. They would not reach it, or, if it is bound to lo, would reach it
// from outside of the Pod.
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
	query := make([]byte, diagRequest)
	query[0], query[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(query[4:], stateListen)
	binary.BigEndian.PutUint16(query[8:], port)
	request := nl.NewNetlinkRequest(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	request.AddRawData(query)
	answers, err := request.Execute(unix.NETLINK_SOCK_DIAG, unix.SOCK_DIAG_BY_FAMILY)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(answers, func(b []byte) bool {
		return len(b) >= diagAnswer && binary.NativeEndian.Uint32(b[diagDevice:]) == 0 && !slices.Contains(except, listenerOf(b))
	}), nil
}

// listenerOf reads the address and the port of a struct inet_diag_msg.
func listenerOf(b []byte) netip.AddrPort {
	address := netip.AddrFrom16([16]byte(b[8:]))
	if b[0] == unix.AF_INET {
		address = netip.AddrFrom4([4]byte(b[8:]))
	}
	return netip.AddrPortFrom(address, binary.BigEndian.Uint16(b[4:]))
}
