package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// TargetLink and SenderLink are the two ends of the measured veth pair. BesideLink is the sender's end of a pair to the
// namespace that is not captured.
const (
	TargetLink = "eth0"
	SenderLink = "peer0"
	BesideLink = "peer1"
	TargetIP   = "10.77.0.1"
	SenderIP   = "10.77.0.2"

	// BesideIP is the address of the namespace that is not captured.
	BesideIP     = "10.77.1.1"
	besidePeerIP = "10.77.1.2"
)

// Network has the namespaces of the target and of the sender, joined by a veth pair, and a third one that is not
// captured. They have no names, so the kernel removes them when bench and its children have ended.
type Network struct {
	Target, Sender, Beside *os.File
	// TargetMAC and BesideMAC are the addresses of TargetLink in two of them.
	TargetMAC, BesideMAC net.HardwareAddr
}

func newNetwork() (*Network, error) {
	n := &Network{}
	for _, f := range []**os.File{&n.Target, &n.Sender, &n.Beside} {
		var err error
		if *f, err = newNamespace(); err != nil {
			return nil, errors.Join(err, n.close())
		}
	}
	err := errors.Join(n.connect(n.Target, &n.TargetMAC, SenderLink, TargetIP, SenderIP), n.connect(n.Beside, &n.BesideMAC, BesideLink, BesideIP, besidePeerIP))
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *Network) close() error {
	var errs []error
	for _, f := range []*os.File{n.Target, n.Sender, n.Beside} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// newNamespace creates a network namespace without IPv6, because IPv6 sends packets of its own.
func newNamespace() (*os.File, error) {
	type made struct {
		f   *os.File
		err error
	}
	ch := make(chan made)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			ch <- made{err: fmt.Errorf("make network namespace (needs root): %w", err)}
			return
		}
		// /proc/sys/net shows the network namespace of the thread that opens it.
		for _, of := range []string{"all", "default"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+of+"/disable_ipv6", []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
				ch <- made{err: fmt.Errorf("turn IPv6 off: %w", err)}
				return
			}
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		ch <- made{f, err}
	}()
	m := <-ch
	return m.f, m.err
}

// connect joins the sender to another namespace by a veth pair, whose end there is TargetLink, and sets its address.
func (n *Network) connect(to *os.File, mac *net.HardwareAddr, link, toIP, ip string) error {
	target, err := netlink.NewHandleAt(netns.NsHandle(to.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open target's namespace: %w", err)
	}
	defer target.Close()
	sender, err := netlink.NewHandleAt(netns.NsHandle(n.Sender.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open sender's namespace: %w", err)
	}
	defer sender.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = TargetLink
	if err := target.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: link, PeerNamespace: netlink.NsFd(int(n.Sender.Fd()))}); err != nil {
		return fmt.Errorf("add veth: %w", err)
	}
	targetMAC, err := up(target, TargetLink, toIP)
	if err != nil {
		return err
	}
	senderMAC, err := up(sender, link, ip)
	if err != nil {
		return err
	}
	*mac = targetMAC
	// Static neighbours avoid ARP, so that only the measured packets pass.
	return errors.Join(setNeighbour(target, TargetLink, ip, senderMAC), setNeighbour(sender, link, toIP, targetMAC))
}

// up sets a link and the loopback link up, and returns the link's address.
func up(h *netlink.Handle, name, ip string) (net.HardwareAddr, error) {
	for _, link := range []string{"lo", name} {
		l, err := h.LinkByName(link)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", link, err)
		}
		if err := h.LinkSetUp(l); err != nil {
			return nil, fmt.Errorf("set %s up: %w", link, err)
		}
	}
	l, err := h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", name, err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(24, 32)}}
	if err := h.AddrAdd(l, addr); err != nil {
		return nil, fmt.Errorf("add %s to %s: %w", ip, name, err)
	}
	return l.Attrs().HardwareAddr, nil
}

func setNeighbour(h *netlink.Handle, name, ip string, mac net.HardwareAddr) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	err = h.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(ip), HardwareAddr: mac})
	if err != nil {
		return fmt.Errorf("add neighbour %s: %w", ip, err)
	}
	return nil
}

// Traffic counts the packets on the target's link in both directions, as the network stack sees them: a GSO packet is
// one. Lost are the packets that were lost before a capture could see them.
type Traffic struct {
	Packets, Lost uint64
}

// Traffic returns the counters of the target's link.
func (n *Network) Traffic() (Traffic, error) {
	h, err := netlink.NewHandleAt(netns.NsHandle(n.Target.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return Traffic{}, fmt.Errorf("open target's namespace: %w", err)
	}
	defer h.Close()
	l, err := h.LinkByName(TargetLink)
	if err != nil {
		return Traffic{}, fmt.Errorf("find %s: %w", TargetLink, err)
	}
	s := l.Attrs().Statistics
	return Traffic{Packets: s.RxPackets + s.TxPackets, Lost: s.RxDropped + s.TxDropped}, nil
}
