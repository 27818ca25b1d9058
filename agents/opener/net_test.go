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

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/test/podnet"
)

const (
	podIP, podV6 = podnet.TargetIP, podnet.TargetV6
	nodeIP       = podnet.PeerIP
	appPort      = "8080"
	otherPort    = "8081"
	meshPort     = "15006"
)

// testNet is the network namespaces of a Pod and of its node, joined by a veth pair.
type testNet struct {
	pod, node *os.File
	inode     uint64 // of pod
}

func newTestNet(t *testing.T) *testNet {
	t.Helper()
	n := &testNet{}
	n.pod, n.node = podnet.New(t)
	var st unix.Stat_t
	if err := unix.Fstat(int(n.pod.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	n.inode = st.Ino
	return n
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
