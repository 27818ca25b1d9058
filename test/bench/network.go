package main

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

// Both ends of the pair that everything is measured on, and the sender's end of one like it that leads to nobody who captures.
const (
	targetLink = "eth0"
	senderLink = "peer0"
	besideLink = "peer1"
	targetIP   = "10.77.0.1"
	senderIP   = "10.77.0.2"

	besideIP     = "10.77.1.1"
	besidePeerIP = "10.77.1.2"
)

// network is a target's namespace and a sender's, joined by a veth pair, and one like the target's beside it. They have no
// names: when bench and its children are gone, however they ended, so are they.
type network struct {
	target, sender, beside *os.File
}

func newNetwork() (*network, error) {
	n := &network{}
	for _, f := range []**os.File{&n.target, &n.sender, &n.beside} {
		var err error
		if *f, err = newNamespace(); err != nil {
			return nil, errors.Join(err, n.close())
		}
	}
	err := errors.Join(n.connect(n.target, senderLink, targetIP, senderIP), n.connect(n.beside, besideLink, besideIP, besidePeerIP))
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *network) close() error {
	var errs []error
	for _, f := range []*os.File{n.target, n.sender, n.beside} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// newNamespace makes a network namespace without IPv6, whose own traffic would be in the way.
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
		// The thread's own view: /proc/sys/net is that of the namespace of whoever opens it.
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

// connect joins the sender to another namespace by a pair, whose end there is targetLink.
func (n *network) connect(to *os.File, link, toIP, ip string) error {
	target, err := netlink.NewHandleAt(netns.NsHandle(to.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open target's namespace: %w", err)
	}
	defer target.Close()
	sender, err := netlink.NewHandleAt(netns.NsHandle(n.sender.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open sender's namespace: %w", err)
	}
	defer sender.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = targetLink
	if err := target.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: link, PeerNamespace: netlink.NsFd(int(n.sender.Fd()))}); err != nil {
		return fmt.Errorf("add veth: %w", err)
	}
	targetMAC, err := up(target, targetLink, toIP)
	if err != nil {
		return err
	}
	senderMAC, err := up(sender, link, ip)
	if err != nil {
		return err
	}
	// No ARP: every packet on the link is one of those that are counted.
	return errors.Join(know(target, targetLink, ip, senderMAC), know(sender, link, toIP, targetMAC))
}

// up sets a link and loopback up and returns the link's address.
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

func know(h *netlink.Handle, name, ip string, mac net.HardwareAddr) error {
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

// traffic counts what passed the target's link: packets as the stack sees them (a GSO packet is one), both ways, and
// those that it lost before a capture could see them.
type traffic struct {
	packets, lost uint64
}

func (n *network) traffic() (traffic, error) {
	h, err := netlink.NewHandleAt(netns.NsHandle(n.target.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return traffic{}, fmt.Errorf("open target's namespace: %w", err)
	}
	defer h.Close()
	l, err := h.LinkByName(targetLink)
	if err != nil {
		return traffic{}, fmt.Errorf("find %s: %w", targetLink, err)
	}
	s := l.Attrs().Statistics
	return traffic{packets: s.RxPackets + s.TxPackets, lost: s.RxDropped + s.TxDropped}, nil
}
