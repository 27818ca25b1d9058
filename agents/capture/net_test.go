package capture

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

// testNet is two network namespaces joined by a veth pair: the target's with eth0, and a peer's with peer0.
type testNet struct {
	target, peer *os.File
}

const (
	targetIP = "10.77.0.1"
	peerIP   = "10.77.0.2"
	targetV6 = "fd77::1"
	peerV6   = "fd77::2"
)

func newTestNet(tb testing.TB) *testNet {
	tb.Helper()
	privileged.Need(tb)
	n := &testNet{target: privileged.NetNS(tb), peer: privileged.NetNS(tb)}
	n.in(tb, n.target, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth0"
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "peer0", PeerNamespace: netlink.NsFd(int(n.peer.Fd()))}
		return h.LinkAdd(veth)
	})
	n.up(tb, n.target, "lo", "")
	n.up(tb, n.peer, "lo", "")
	n.up(tb, n.target, "eth0", targetIP+"/24", targetV6+"/64")
	n.up(tb, n.peer, "peer0", peerIP+"/24", peerV6+"/64")
	n.know(tb, n.target, "eth0", n.mac(tb, n.peer, "peer0"), peerIP, peerV6)
	n.know(tb, n.peer, "peer0", n.mac(tb, n.target, "eth0"), targetIP, targetV6)
	return n
}

func (n *testNet) mac(tb testing.TB, ns *os.File, name string) (mac net.HardwareAddr) {
	tb.Helper()
	n.in(tb, ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	})
	return mac
}

// know adds permanent neighbours, because during neighbour discovery the kernel may drop the first packets.
func (n *testNet) know(tb testing.TB, ns *os.File, name string, mac net.HardwareAddr, ips ...string) {
	tb.Helper()
	n.in(tb, ns, func(h *netlink.Handle) error {
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

func (n *testNet) in(tb testing.TB, ns *os.File, fn func(*netlink.Handle) error) {
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

func (n *testNet) up(tb testing.TB, ns *os.File, name string, addrs ...string) {
	tb.Helper()
	n.in(tb, ns, func(h *netlink.Handle) error {
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

// udp opens an unconnected UDP socket in a namespace.
func (n *testNet) udp(tb testing.TB, ns *os.File, network, addr string) *net.UDPConn {
	tb.Helper()
	var c net.PacketConn
	err := links.InNetNS(int(ns.Fd()), func() (err error) {
		c, err = net.ListenPacket(network, addr)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c.(*net.UDPConn)
}
