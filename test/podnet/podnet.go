// Package podnet makes the network of a Pod for tests that need root: two network namespaces joined by a veth pair, the target's with
// eth0, and a peer's with peer0.
package podnet

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/test/privileged"
)

// Addresses of eth0 and peer0.
const (
	TargetIP = "10.77.0.1"
	PeerIP   = "10.77.0.2"
	TargetV6 = "fd77::1"
	PeerV6   = "fd77::2"
)

// New returns both namespaces, which live until the test ends.
func New(tb testing.TB) (target, peer *os.File) {
	tb.Helper()
	privileged.Need(tb)
	target, peer = privileged.NetNS(tb), privileged.NetNS(tb)
	In(tb, target, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth0"
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "peer0", PeerNamespace: netlink.NsFd(int(peer.Fd()))}
		return h.LinkAdd(veth)
	})
	Up(tb, target, "lo", "")
	Up(tb, peer, "lo", "")
	Up(tb, target, "eth0", TargetIP+"/24", TargetV6+"/64")
	Up(tb, peer, "peer0", PeerIP+"/24", PeerV6+"/64")
	Know(tb, target, "eth0", MAC(tb, peer, "peer0"), PeerIP, PeerV6)
	Know(tb, peer, "peer0", MAC(tb, target, "eth0"), TargetIP, TargetV6)
	return target, peer
}

// MAC returns the hardware address of an interface.
func MAC(tb testing.TB, ns *os.File, name string) (mac net.HardwareAddr) {
	tb.Helper()
	In(tb, ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	})
	return mac
}

// Know adds permanent neighbours, because during neighbour discovery the kernel may drop the first packets.
func Know(tb testing.TB, ns *os.File, name string, mac net.HardwareAddr, ips ...string) {
	tb.Helper()
	In(tb, ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		for _, ip := range ips {
			err := h.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(ip), HardwareAddr: mac})
			if err != nil {
				return fmt.Errorf("add neighbour %s: %w", ip, err)
			}
		}
		return nil
	})
}

// In calls a function with a netlink socket of a namespace. The test fails if the function does.
func In(tb testing.TB, ns *os.File, fn func(*netlink.Handle) error) {
	tb.Helper()
	h, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		tb.Fatal(err)
	}
	defer h.Close()
	if err := fn(h); err != nil {
		tb.Fatal(err)
	}
}

// Up sets an interface up and adds addresses to it. It leaves out empty ones.
func Up(tb testing.TB, ns *os.File, name string, addrs ...string) {
	tb.Helper()
	In(tb, ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		if err := h.LinkSetUp(l); err != nil {
			return err
		}
		for _, s := range addrs {
			if s == "" {
				continue
			}
			a, err := netlink.ParseAddr(s)
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			if err := h.AddrAdd(l, a); err != nil {
				return fmt.Errorf("add %s to %s: %w", s, name, err)
			}
		}
		return nil
	})
}

// UDP opens an unconnected UDP socket in a namespace.
func UDP(tb testing.TB, ns *os.File, network, addr string) *net.UDPConn {
	tb.Helper()
	var c net.PacketConn
	err := links.InNetNS(int(ns.Fd()), func() (err error) {
		c, err = (&net.ListenConfig{}).ListenPacket(tb.Context(), network, addr)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c.(*net.UDPConn)
}

// SendRaw puts frames on the wire by a packet socket. With bypass it sends them around the queueing discipline.
func SendRaw(tb testing.TB, ns *os.File, device string, bypass bool, frames ...[]byte) {
	tb.Helper()
	var index int
	In(tb, ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(device)
		if err == nil {
			index = l.Attrs().Index
		}
		return err
	})
	err := links.InNetNS(int(ns.Fd()), func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		if bypass {
			if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
				return err
			}
		}
		for _, f := range frames {
			if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}
