package capture

import (
	"net"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sonde-operator/sonde/test/podnet"
)

// testNet is the network of a Pod: the target's namespace with eth0, and a peer's with peer0.
type testNet struct {
	target, peer *os.File
}

const (
	targetIP = podnet.TargetIP
	peerIP   = podnet.PeerIP
	targetV6 = podnet.TargetV6
	peerV6   = podnet.PeerV6
)

func newTestNet(tb testing.TB) *testNet {
	tb.Helper()
	target, peer := podnet.New(tb)
	return &testNet{target: target, peer: peer}
}

func (n *testNet) mac(tb testing.TB, ns *os.File, name string) net.HardwareAddr {
	tb.Helper()
	return podnet.MAC(tb, ns, name)
}

func (n *testNet) know(tb testing.TB, ns *os.File, name string, mac net.HardwareAddr, ips ...string) {
	tb.Helper()
	podnet.Know(tb, ns, name, mac, ips...)
}

func (n *testNet) in(tb testing.TB, ns *os.File, fn func(*netlink.Handle) error) {
	tb.Helper()
	podnet.In(tb, ns, fn)
}

func (n *testNet) up(tb testing.TB, ns *os.File, name string, addrs ...string) {
	tb.Helper()
	podnet.Up(tb, ns, name, addrs...)
}

func (n *testNet) udp(tb testing.TB, ns *os.File, network, addr string) *net.UDPConn {
	tb.Helper()
	return podnet.UDP(tb, ns, network, addr)
}
