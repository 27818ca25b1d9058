package tc

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/test/privileged"
)

// The engine's defaults.
const (
	snapLen          = 262144
	defaultRingBytes = 32 << 20
)

// loopback is the index of a network namespace's first interface.
const loopback = 1

// newNamespace makes a network namespace with a loopback interface that is up.
func newNamespace(t *testing.T) *os.File {
	t.Helper()
	ns := privileged.NetNS(t)
	err := links.InNetNS(int(ns.Fd()), func() error {
		return netlink.LinkSetUp(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: loopback}})
	})
	if err != nil {
		t.Fatal(err)
	}
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
