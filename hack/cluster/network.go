package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	switchPart       = "switch"
	controlPlanePart = "control-plane"
	bridgeName       = "br0"
)

// makeNetwork creates the cluster's network: one namespace with a bridge, one for the control plane and one for each
// node, all connected to the bridge. Routes to the Pods of each node are static.
func makeNetwork(l layout, nodes int) error {
	sw, err := makeSwitch(l)
	if err != nil {
		return err
	}
	defer sw.Close()
	plugs := []plug{{part: controlPlanePart, port: "cp", ip: controlPlaneIP}}
	for i := 1; i <= nodes; i++ {
		plugs = append(plugs, plug{part: nodeName(i), port: nodeName(i), ip: nodeIP(i), node: i})
	}
	for _, p := range plugs {
		if err := p.connect(l, sw, nodes); err != nil {
			return fmt.Errorf("connect %s to the cluster's network: %w", p.part, err)
		}
	}
	return nil
}

// plug is one namespace that is connected to the bridge.
type plug struct {
	part, port, ip string
	// node is the node's number, 0 for the control plane.
	node int
}

func makeSwitch(l layout) (*namespace, error) {
	if err := shareNetnsDir(); err != nil {
		return nil, err
	}
	sw, err := newNamespace(l.netns(switchPart))
	if err != nil {
		return nil, err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
	if err := sw.LinkAdd(bridge); err != nil {
		sw.Close()
		return nil, fmt.Errorf("create the cluster's bridge: %w", err)
	}
	if err := sw.up(bridgeName); err != nil {
		sw.Close()
		return nil, err
	}
	// Do not filter forwarded packets in the switch: the nodes filter their own.
	return sw, sw.sysctl("net/bridge/bridge-nf-call-iptables", "0")
}

func (p plug) connect(l layout, sw *namespace, nodes int) error {
	ns, err := newNamespace(l.netns(p.part))
	if err != nil {
		return err
	}
	defer ns.Close()
	bridge, err := sw.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("find the bridge: %w", err)
	}
	cable := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: p.port, MasterIndex: bridge.Attrs().Index},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(int(ns.ns)),
	}
	if err := sw.LinkAdd(cable); err != nil {
		return fmt.Errorf("create a veth pair: %w", err)
	}
	if err := sw.up(p.port); err != nil {
		return err
	}
	if err := ns.configure(p.ip); err != nil {
		return err
	}
	for i := 1; i <= nodes; i++ {
		if i == p.node {
			continue
		}
		if err := ns.route(podCIDR(i), nodeIP(i)); err != nil {
			return err
		}
	}
	if p.node == 0 {
		return nil
	}
	if err := ns.sysctl("net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	// Replies between two Pods of one node cross only the bridge. They must pass netfilter, because that reverts
	// kube-proxy's translation of a Service's address.
	return ns.sysctl("net/bridge/bridge-nf-call-iptables", "1")
}

// namespace is a named network namespace with a netlink socket inside it.
type namespace struct {
	*netlink.Handle
	ns   netns.NsHandle
	path string
}

// newNamespace creates the named network namespace and binds it at path.
func newNamespace(path string) (*namespace, error) {
	n := &namespace{path: path}
	// The thread that creates a namespace stays inside it, so it is discarded.
	err := onOwnThread(func() error {
		var err error
		n.ns, err = netns.NewNamed(filepath.Base(n.path))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create the network namespace %s: %w", n.path, err)
	}
	if n.Handle, err = netlink.NewHandleAt(n.ns); err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink in %s: %w", n.path, err), n.ns.Close())
	}
	return n, n.up("lo")
}

func (n *namespace) Close() {
	n.Handle.Close()
	_ = n.ns.Close()
}

func (n *namespace) up(link string) error {
	l, err := n.LinkByName(link)
	if err == nil {
		err = n.LinkSetUp(l)
	}
	if err != nil {
		return fmt.Errorf("bring %s up in %s: %w", link, n.path, err)
	}
	return nil
}

// configure gives eth0 its address and a default route to a gateway that does not exist. Programs need a default route
// to exist; nothing is sent along it.
func (n *namespace) configure(ip string) error {
	eth0, err := n.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0 in %s: %w", n.path, err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(networkBits, 32)}}
	if err := n.AddrAdd(eth0, addr); err != nil {
		return fmt.Errorf("give %s the address %s: %w", n.path, ip, err)
	}
	if err := n.up("eth0"); err != nil {
		return err
	}
	return n.route("0.0.0.0/0", gatewayIP)
}

func (n *namespace) route(to, via string) error {
	_, dst, err := net.ParseCIDR(to)
	if err != nil {
		return fmt.Errorf("route to %s: %w", to, err)
	}
	if err := n.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}); err != nil {
		return fmt.Errorf("route to %s via %s in %s: %w", to, via, n.path, err)
	}
	return nil
}

// sysctl sets a network setting of the namespace. /proc/sys/net shows the namespace of the thread that opens it.
func (n *namespace) sysctl(name, value string) error {
	return inNetns(n.path, func() error {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		return nil
	})
}

// onOwnThread runs f on a separate thread that ends with f, so that no other code runs in the namespaces that f enters.
func onOwnThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the runtime ends a thread whose goroutine ends locked.
		runtime.LockOSThread()
		result <- f()
	}()
	return <-result
}

// inNetns runs f on a thread in the network namespace at path. Sockets that f creates stay in that namespace and work
// everywhere.
func inNetns(path string, f func() error) error {
	return onOwnThread(func() error {
		if err := enterNetns(path); err != nil {
			return err
		}
		return f()
	})
}

// enterNetns moves the calling thread into the network namespace at path.
func enterNetns(path string) error {
	h, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer h.Close()
	if err := unix.Setns(int(h.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace %s: %w", path, err)
	}
	return nil
}

// leftNetns returns the paths of the cluster's network namespaces.
func leftNetns(l layout) ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), l.netnsPrefix()) {
			paths = append(paths, filepath.Join(netnsDir, e.Name()))
		}
	}
	return paths, nil
}

// removeNetwork removes the cluster's network namespaces with all their interfaces, routes and rules.
func removeNetwork(l layout) error {
	paths, err := leftNetns(l)
	if err != nil {
		return err
	}
	for _, p := range paths {
		// EINVAL: a killed `up` created the file but did not yet bind a namespace.
		if err := unix.Unmount(p, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unbind the network namespace %s: %w", p, err)
		}
		if err := os.Remove(p); err != nil {
			return fmt.Errorf("remove the network namespace: %w", err)
		}
	}
	return removeNetnsDir()
}

// shareNetnsDir makes the directory a shared mount, as iproute2 does at its first `ip netns add`. If that happened
// while a cluster is up, it would mount the directory over itself and hide the cluster's namespaces.
func shareNetnsDir() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return fmt.Errorf("make the directory of network namespaces: %w", err)
	}
	share := func() error { return unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if errors.Is(err, unix.EINVAL) { // not a mount yet
		if err = unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = share()
		}
	}
	if err != nil {
		return fmt.Errorf("share the directory of network namespaces: %w", err)
	}
	return nil
}

// removeNetnsDir removes the directory unless other namespaces are in it.
func removeNetnsDir() error {
	entries, err := os.ReadDir(netnsDir)
	if errors.Is(err, os.ErrNotExist) || len(entries) > 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list network namespaces: %w", err)
	}
	// EINVAL: it is not a mount point.
	if err := unix.Unmount(netnsDir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount the directory of network namespaces: %w", err)
	}
	// A namespace created meanwhile keeps the directory.
	_ = os.Remove(netnsDir)
	return nil
}
