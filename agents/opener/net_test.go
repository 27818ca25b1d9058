package opener

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/test/privileged"
)

const (
	podIP, podV6   = "10.78.0.1", "fd78::1"
	nodeIP, nodeV6 = "10.78.0.2", "fd78::2"
	appPort        = "8080"
	otherPort      = "8081"
	meshPort       = "15006"
)

// testNet is the network namespaces of a Pod and of its node, joined by a veth pair.
type testNet struct {
	pod, node *os.File
	inode     uint64 // of pod
}

func newTestNet(t *testing.T) *testNet {
	t.Helper()
	n := &testNet{pod: privileged.NetNS(t), node: privileged.NetNS(t)}
	var st unix.Stat_t
	if err := unix.Fstat(int(n.pod.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	n.inode = st.Ino
	n.handle(t, n.pod, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth0"
		return h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "veth0", PeerNamespace: netlink.NsFd(int(n.node.Fd()))})
	})
	n.up(t, n.pod, "lo")
	n.up(t, n.node, "lo")
	n.up(t, n.pod, "eth0", podIP+"/24", podV6+"/64")
	n.up(t, n.node, "veth0", nodeIP+"/24", nodeV6+"/64")
	return n
}

func (n *testNet) handle(t *testing.T, ns *os.File, fn func(*netlink.Handle) error) {
	t.Helper()
	h, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := fn(h); err != nil {
		t.Fatal(err)
	}
}

func (n *testNet) up(t *testing.T, ns *os.File, name string, addrs ...string) {
	t.Helper()
	n.handle(t, ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		if err := h.LinkSetUp(l); err != nil {
			return err
		}
		for _, s := range addrs {
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

// inNS calls fn in a namespace.
func inNS(t *testing.T, ns *os.File, fn func() error) {
	t.Helper()
	if err := links.InNetNS(int(ns.Fd()), fn); err != nil {
		t.Fatal(err)
	}
}

// app listens in the Pod and answers each line with its name and the connection's addresses.
func (n *testNet) app(t *testing.T, name, port string) net.Listener {
	t.Helper()
	var l net.Listener
	eventually(t, "port "+port+" is free", func() (string, bool) { // an earlier listener may still be closing
		var err error
		inNS(t, n.pod, func() error {
			l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":"+port)
			return nil
		})
		return fmt.Sprint(err), err == nil
	})
	t.Cleanup(func() { _ = l.Close() })
	go serve(l, name)
	return l
}

func serve(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go answer(c, name)
	}
}

func answer(c net.Conn, name string) {
	defer c.Close()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		fmt.Fprintf(c, "%s %s from %s\n", name, c.LocalAddr(), c.RemoteAddr())
	}
}

// connect connects from a namespace.
func connectFrom(ns *os.File, address string) (c net.Conn, err error) {
	err = links.InNetNS(int(ns.Fd()), func() error {
		c, err = (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", address)
		return err
	})
	return c, err
}

// question is a line to an app on a connection. It returns the answer.
func question(c net.Conn) (string, error) {
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "?\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// ask connects from a namespace and returns the answer, or the error's text.
func ask(ns *os.File, address string) string {
	c, err := connectFrom(ns, address)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	answer, err := question(c)
	if err != nil {
		return err.Error()
	}
	return answer
}

// testTimeout bounds each wait. Emulated machines (hack/vm) are slow.
const testTimeout = 2 * time.Minute

// eventually waits for a condition. Its function says what it found.
func eventually(t *testing.T, what string, is func() (string, bool)) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for over := time.After(testTimeout); ; {
		found, ok := is()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("not within %v: %s; found %s", testTimeout, what, found)
		}
	}
}

// answers waits for an answer with a prefix.
func answers(t *testing.T, ns *os.File, address, want string) {
	t.Helper()
	eventually(t, address+" answers "+want, func() (string, bool) {
		got := ask(ns, address)
		return got, strings.HasPrefix(got, want)
	})
}

// listening returns the local addresses of the listening TCP sockets of a namespace, as the kernel prints them.
func listening(t *testing.T, ns *os.File) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	inNS(t, ns, func() error {
		for _, name := range []string{"tcp", "tcp6"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(b)) {
				if fields := strings.Fields(line); len(fields) > 3 && fields[3] == "0A" { // TCP_LISTEN
					all[name+" "+fields[1]] = true
				}
			}
		}
		return nil
	})
	return all
}

// kernelBefore reports whether the kernel is older than a version.
func kernelBefore(t *testing.T, major, minor int) bool {
	t.Helper()
	var u syscall.Utsname
	if err := syscall.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var release []byte
	for _, c := range u.Release {
		release = append(release, byte(c))
	}
	var ma, mi int
	if _, err := fmt.Sscanf(string(release), "%d.%d", &ma, &mi); err != nil {
		t.Fatal(err)
	}
	return ma < major || ma == major && mi < minor
}
