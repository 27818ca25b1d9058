package tc

import (
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/privileged"
)

// The engine's defaults.
const (
	snapLen          = 262144
	defaultRingBytes = 32 << 20
)

// loopback is the index of a network namespace's first interface.
const loopback = 1

// discard is the port to which tests send.
const discard = 9

// onlyDiscard is libpcap's program for "udp dst port 9", shortened: IPv4 without options or IPv6, no fragments.
var onlyDiscard = map[pcapng.LinkType]bpfprog.Program{pcapng.LinkTypeEthernet: {
	{Code: 0x28, K: 12},
	{Code: 0x15, K: unix.ETH_P_IPV6, Jf: 4},
	{Code: 0x30, K: 20},
	{Code: 0x15, K: 17, Jf: 8},
	{Code: 0x28, K: 56},
	{Code: 0x15, K: discard, Jt: 5, Jf: 6},
	{Code: 0x15, K: unix.ETH_P_IP, Jf: 5},
	{Code: 0x30, K: 23},
	{Code: 0x15, K: 17, Jf: 3},
	{Code: 0x28, K: 36},
	{Code: 0x15, K: discard, Jf: 1},
	{Code: 0x06, K: 262144},
	{Code: 0x06},
}}

// newNamespace makes a network namespace with a loopback interface that is up.
func newNamespace(t *testing.T) *os.File {
	t.Helper()
	privileged.Need(t)
	var ns *os.File
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
		if err == nil {
			err = netlink.LinkSetUp(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: loopback}})
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// sender returns a socket that sends to the discard port over loopback.
func sender(t *testing.T, ns *os.File) net.Conn {
	t.Helper()
	var c net.Conn
	err := links.InNetNS(int(ns.Fd()), func() (err error) {
		c, err = net.Dial("udp4", "127.0.0.1:9")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}
