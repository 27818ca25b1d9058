package opener

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/carrier"
	"github.com/sonde-operator/sonde/internal/wire/handover"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
	"github.com/sonde-operator/sonde/test/podnet"
	"github.com/sonde-operator/sonde/test/privileged"
)

const (
	databasePort = "5432"
	// reachTimeout bounds each wait of a carrier that was taken over. The database is one hop away. A control waits longer, so that a
	// slow machine does not fail it.
	reachTimeout, controlTimeout = 500 * time.Millisecond, 20 * time.Second
	// ofTheDatabase begins the database's answer.
	ofTheDatabase = "DATABASE "
	wayConnect    = "connect"
	wayFastOpen   = "fastopen"
)

// TestTakenOver takes over a carrier. It connects each socket that it has in the Pod's network namespace to another host, which would
// take it for the Pod.
func TestTakenOver(t *testing.T) {
	privileged.Need(t)
	keep := settings(t)[privilege.Capabilities]
	for name, landlock := range map[string]bool{"without Landlock": false, "with Landlock": true} {
		t.Run(name, func(t *testing.T) { reachesNoOtherHost(newOpener(t, keep), landlock) })
	}
}

func reachesNoOtherHost(w *world, landlock bool) {
	t := w.t
	databases := w.databases()
	w.carrier = w.takeOver(landlock)
	w.says("connected 2")
	w.steer(true)
	if !landlock { // Landlock may refuse both ways
		for _, database := range databases {
			if got := w.tell("unfiltered " + database + " " + wayConnect); !strings.HasPrefix(got, ofTheDatabase) {
				t.Fatalf("control: a socket without the filter gets no answer of %s: %s", database, got)
			}
		}
	}
	for i, own := range []string{podIP, "[" + podV6 + "]"} {
		for _, way := range []string{wayConnect, wayFastOpen} {
			attack := databases[i] + " " + way
			w.refused("dialled "+own+":"+appPort, attack)
			caller, err := connectFrom(w.node, own+":"+appPort)
			if err != nil {
				t.Fatal(err)
			}
			w.refused("accepted", attack)
			_ = caller.Close()
		}
	}
	// A socket gets no answer of the other family's host either, where the kernel lets it connect there.
	w.refused("dialled ["+podV6+"]:"+appPort, "[::ffff:"+nodeIP+"]:"+databasePort+" "+wayConnect)
	for i := range databases {
		w.refused("listener "+strconv.Itoa(i), databases[i]+" "+wayConnect)
	}
	w.learnsNoClosedPort(landlock)
}

// learnsNoClosedPort lets the carrier connect to ports on which no host listens.
func (w *world) learnsNoClosedPort(landlock bool) {
	const closedPort, refusal = "5433", "connection refused"
	t := w.t
	for own, closed := range map[string]string{podIP: nodeIP, "[" + podV6 + "]": "[" + podnet.PeerV6 + "]"} {
		for _, way := range []string{wayConnect, wayFastOpen} {
			attack := closed + ":" + closedPort + " " + way
			if !landlock { // Landlock may refuse both ways
				if got := w.tell("unfiltered " + attack); !strings.Contains(got, refusal) {
					t.Fatalf("control: a socket without the filter does not learn that a port is closed: %s", got)
				}
			}
			socket := "dialled " + own + ":" + appPort
			got := w.tell(socket + " " + attack)
			if t.Logf("%s, then %s: %s", socket, attack, got); strings.Contains(got, refusal) {
				t.Errorf("a carrier learns that a port is closed: %s", got)
			}
		}
	}
}

func (w *world) refused(socket, attack string) {
	w.t.Helper()
	got := w.tell(socket + " " + attack)
	w.t.Logf("%s, then %s: %s", socket, attack, got)
	if strings.HasPrefix(got, ofTheDatabase) || strings.HasPrefix(got, "failed") {
		w.t.Errorf("%s, then %s: %s", socket, attack, got)
	}
}

// databases returns the addresses of servers outside the Pod. They accept no data of TCP Fast Open without a cookie.
func (w *world) databases() (addresses []string) {
	w.t.Helper()
	for _, host := range []string{nodeIP, "[" + podnet.PeerV6 + "]"} {
		address := host + ":" + databasePort
		var l net.Listener
		inNS(w.t, w.node, func() (err error) {
			l, err = (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", address)
			return err
		})
		w.t.Cleanup(func() { _ = l.Close() })
		go serve(l, "DATABASE")
		addresses = append(addresses, address)
	}
	return addresses
}

// takeOver starts a carrier that attacks. As files 3 and 4 it gets sockets without the filter, for the controls.
func (w *world) takeOver(landlock bool) *child {
	w.t.Helper()
	return w.start("taken over", func(cmd *exec.Cmd) error {
		cmd.Env = append(cmd.Env, landlockVariable+"="+strconv.FormatBool(landlock))
		for _, domain := range []int{unix.AF_INET, unix.AF_INET6} {
			var fd int
			if err := links.InNetNS(int(w.pod.Fd()), func() (err error) {
				fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
				return err
			}); err != nil {
				return err
			}
			f := os.NewFile(uintptr(fd), "unfiltered")
			w.t.Cleanup(func() { _ = f.Close() })
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: carrierUser, Gid: carrierUser}}
		return cmd.Start()
	})
}

// beTakenOver is a carrier that follows the commands of an attacker. The first word names a socket, the last two a host and a way.
func beTakenOver(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := handover.Connect(ctx, socket)
	if err != nil {
		return err
	}
	if os.Getenv(landlockVariable) == "true" {
		inForce, err := carrier.Restrict("127.0.0.1:8444")
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "restrictions: %+v\n", inForce)
	}
	fmt.Println("connected", len(c.Listeners()))
	accepted := make(chan net.Conn)
	for _, l := range c.Listeners() {
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- conn
			}
		}()
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		command := strings.Fields(in.Text())
		if command[0] == "steer" {
			fmt.Println(follow(ctx, c, command))
			continue
		}
		fd, err := loot(ctx, c, accepted, command)
		if err != nil {
			fmt.Println("failed:", err)
			continue
		}
		timeout := reachTimeout
		if command[0] == "unfiltered" {
			timeout = controlTimeout
		}
		fmt.Println(said(reach(fd, netip.MustParseAddrPort(command[len(command)-2]), command[len(command)-1], timeout)))
		_ = unix.Close(fd)
	}
	return in.Err()
}

// loot returns a socket in the Pod's network namespace.
func loot(ctx context.Context, c *handover.Client, accepted <-chan net.Conn, command []string) (int, error) {
	var source syscall.Conn
	switch command[0] {
	case "unfiltered":
		if strings.HasPrefix(command[1], "[") {
			return unix.Dup(4)
		}
		return unix.Dup(3)
	case "dialled":
		conn, err := c.Dial(ctx, netip.MustParseAddrPort(command[1]))
		if err != nil {
			return -1, err
		}
		defer conn.Close()
		source = conn
	case "accepted":
		conn := (<-accepted).(*net.TCPConn)
		defer conn.Close()
		source = conn
	case "listener":
		i, err := strconv.Atoi(command[1])
		if err != nil {
			return -1, err
		}
		source = c.Listeners()[i].(*net.TCPListener)
	default:
		return -1, fmt.Errorf("unknown command %q", command)
	}
	raw, err := source.SyscallConn()
	if err != nil {
		return -1, err
	}
	var fd int
	var dup error
	err = raw.Control(func(own uintptr) { fd, dup = unix.Dup(int(own)) })
	return fd, errors.Join(err, dup)
}

// reach takes the filter from a socket if it can, disconnects it, connects it to another host, and returns the answer.
func reach(fd int, to netip.AddrPort, way string, wait time.Duration) (string, error) {
	pass := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 20}}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 0)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	_ = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &pass[0]})
	unspecified := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)), unsafe.Sizeof(unspecified))
	if errno != 0 {
		return "", fmt.Errorf("disconnect: %w", errno)
	}
	timeout := unix.NsecToTimeval(wait.Nanoseconds())
	if err := errors.Join(
		unix.SetNonblock(fd, false),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
	); err != nil {
		return "", err
	}
	if way == wayConnect {
		if err := unix.Connect(fd, sockaddrOf(to, 0)); err != nil {
			return "", os.NewSyscallError("connect", err)
		}
		if _, err := unix.Write(fd, []byte("?\n")); err != nil {
			return "", os.NewSyscallError("write", err)
		}
	} else if err := unix.Sendto(fd, []byte("?\n"), unix.MSG_FASTOPEN, sockaddrOf(to, 0)); err != nil {
		return "", os.NewSyscallError("fast open", err)
	}
	answer := make([]byte, 200)
	n, err := unix.Read(fd, answer)
	return strings.TrimSpace(string(answer[:max(n, 0)])), os.NewSyscallError("read", err)
}
