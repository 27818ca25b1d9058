package pcapfilter_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

// testNet is a network namespace with a veth pair, both ends up and without
// addresses. The test's goroutine is locked to the thread that is in it.
type testNet struct {
	// captured is watched; peer is the other end.
	captured, peer netlink.Link
}

// newTestNet enters a new namespace for the rest of the test. The namespace
// ends with the thread, which is not reused.
func newTestNet(t *testing.T) *testNet {
	t.Helper()
	needPrivileges(t)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	// The kernel's own neighbour discovery would be noise.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "captured"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer"}); err != nil {
		t.Fatalf("make veth pair: %v", err)
	}
	return &testNet{captured: bringUp(t, "captured"), peer: bringUp(t, "peer")}
}

// needPrivileges skips a test without root and tcpdump, or fails it where both
// are promised.
func needPrivileges(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("tcpdump")
	if os.Geteuid() == 0 && err == nil {
		return
	}
	if os.Getenv("REQUIRE_PRIVILEGED") == "1" {
		t.Fatal("this test needs root and tcpdump, and REQUIRE_PRIVILEGED=1 promises them")
	}
	t.Skip("needs root and tcpdump")
}

// pinToOneCPU keeps the thread on one CPU: there is a packet queue per CPU, and
// a later packet must not overtake an earlier one.
func pinToOneCPU(t *testing.T) {
	t.Helper()
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if allowed.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
}

func bringUp(t *testing.T, name string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	return link
}

// tcpdumpPrograms returns tcpdump's programs for the captured device, as the
// text of a Program.
func (n *testNet) tcpdumpPrograms(t *testing.T, expressions []string) map[string]string {
	t.Helper()
	outputs := make([]bytes.Buffer, len(expressions))
	commands := make([]*exec.Cmd, len(expressions))
	for i, expression := range expressions {
		commands[i] = exec.CommandContext(t.Context(), "tcpdump", "-ddd", "-i", n.captured.Attrs().Name, expression)
		commands[i].Stdout = &outputs[i]
		// A process inherits the namespace of the thread that starts it.
		if err := commands[i].Start(); err != nil {
			t.Fatalf("start tcpdump: %v", err)
		}
	}
	programs := make(map[string]string)
	for i, expression := range expressions {
		if err := commands[i].Wait(); err != nil {
			t.Errorf("tcpdump -ddd %q: %v", expression, err)
		}
		programs[expression] = programText(outputs[i].Bytes())
	}
	return programs
}

// programText brings the output of tcpdump -ddd into the form of Program.String.
func programText(output []byte) string {
	return strings.ReplaceAll(strings.TrimSpace(string(output)), "\n", ",")
}

// openSocket returns a packet socket on the link for the packets that the
// program accepts, in both directions. The nil program accepts everything.
func openSocket(t *testing.T, link netlink.Link, program bpfprog.Program) int {
	t.Helper()
	// Without a protocol no packet arrives before bind, after the filter is set.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open packet socket: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
		t.Fatalf("enlarge receive buffer: %v", err)
	}
	if len(program) > 0 {
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, sockFprog(program)); err != nil {
			t.Fatalf("attach filter: %v", err)
		}
	}
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index}); err != nil {
		t.Fatalf("bind packet socket: %v", err)
	}
	return fd
}

func sockFprog(program bpfprog.Program) *unix.SockFprog {
	filter := make([]unix.SockFilter, len(program))
	for i, in := range program {
		filter[i] = unix.SockFilter(in)
	}
	return &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
}
