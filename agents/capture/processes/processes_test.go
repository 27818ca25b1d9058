package processes

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/podnet"
	"github.com/sonde-operator/sonde/test/privileged"
	"github.com/sonde-operator/sonde/test/sockets"
)

// TestProcessesChangeHands has sockets that one process makes and another one uses. None of their packets may name the wrong
// one. In the end each names the right one, or says that it is shared.
func TestProcessesChangeHands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const (
		oldPass, oldFork, oldShare                                               = 7000, 7001, 7002
		pass, passListener, passAccepted, fork, share, prefork, spawning, cloned = 7100, 7101, 7102, 7103, 7104, 7105, 7106, 7107
	)
	w.Answers, w.Either = []uint16{passAccepted}, []uint16{prefork}
	w.Run(oldPass, w.Program, "pass")
	w.Run(oldFork, w.Program, "fork")
	w.Run(oldShare, w.Program, "share")
	stop := w.start()
	w.Run(pass, w.Program, "pass")
	w.Run(passListener, w.Program, "pass-listener")
	w.Run(passAccepted, w.Program, "pass-accepted")
	w.Run(fork, w.Program, "fork")
	w.Run(share, w.Program, "share")
	w.Run(prefork, w.Program, "prefork")
	w.Run(spawning, w.Program, "spawn")
	w.Run(cloned, w.Program, "clone-files")
	settled := func(all map[uint16]*sockets.Score) string {
		for port := range w.PIDs {
			if all[port] == nil {
				return fmt.Sprintf("port %d: no packets", port)
			}
		}
		for _, port := range []uint16{oldPass, oldFork, pass, fork, passListener, cloned} {
			if s := all[port]; s.Right == 0 || s.Last.Reason != pcapng.ProcessKnown {
				return fmt.Sprintf("port %d: the last packet has %v", port, s.Last)
			}
		}
		for _, port := range []uint16{oldShare, share, prefork} {
			if all[port].Reasons[pcapng.ProcessShared] == 0 {
				return fmt.Sprintf("port %d: shared by several, and no packet says so: %v", port, all[port].Reasons)
			}
		}
		if s := all[spawning]; s.Right < s.Unknown {
			return fmt.Sprintf("port %d: of a process that starts others, %d right, %d unknown", spawning, s.Right, s.Unknown)
		}
		return ""
	}
	var all map[uint16]*sockets.Score
	why := "no packets"
	for end := time.Now().Add(2 * time.Minute); why != "" && time.Now().Before(end); {
		for range 20 {
			for _, port := range []int{oldPass, oldFork, oldShare, pass, fork, share, spawning, cloned} {
				w.Ask("udp", podnet.TargetIP, port, 5)
			}
			for _, port := range []int{passListener, passAccepted, prefork} {
				w.Ask("tcp", podnet.TargetIP, port, 5)
			}
		}
		all = w.Scores(w.path)
		why = settled(all)
	}
	if why != "" {
		t.Error(why)
	}
	all = w.Scores(stop().Path)
	for port, s := range all {
		if s.Wrong > 0 {
			t.Errorf("port %d: %d wrong: %s", port, s.Wrong, s.Example)
		}
	}
	for _, port := range []uint16{oldShare, share} {
		if s := all[port]; s.Right > 0 {
			t.Errorf("port %d: %d packets name one of two processes", port, s.Right)
		}
	}
	if t.Failed() {
		t.Log("\n" + sockets.Report(all))
	}
}

// A child shares its parent's descriptors, and uses a socket of the parent. The counts of threads and of users of the descriptors are
// equal, because a thread has descriptors of its own.
func TestProcessesShareATableOfFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	program := w.Run(7000, w.Program, "share-table")
	stop := w.start()
	if err := program.Process.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	w.awaitLast(7000, pcapng.ProcessShared)
	if s := w.Scores(stop().Path)[7000]; s.Right+s.Wrong > 0 {
		t.Errorf("%+v", s)
	}
}

// A process that renames itself as fast as it can, while large packets of it are copied, cannot make its file unreadable. Each of its
// packets has one of its names, or none.
func TestRenamedProcess(t *testing.T) {
	t.Parallel()
	if named, _ := renamed(t, "rename", 300*time.Millisecond); named == 0 { // for some thousand renames
		t.Error("no packet names the process")
	}
}

// TestRenamedOnce has a pause after each rename: a packet whose options are replaced meanwhile still has one of the names. Only a packet
// whose processor was taken away for more than the pause may have none.
func TestRenamedOnce(t *testing.T) {
	t.Parallel()
	named, unknown := renamed(t, "rename-each-ms", 2*time.Second)
	if named == 0 || unknown > named/1000 {
		t.Errorf("%d packets name their process, %d do not", named, unknown)
	}
}

// renamed captures packets of a process that renames itself, and counts those that name it and those that lost its name.
func renamed(t *testing.T, how string, during time.Duration) (named, unknown int) {
	t.Helper()
	w := newWorld(t)
	stop := w.start()
	w.Run(7000, w.Program, how)
	time.Sleep(during)
	sockets.EachPacket(t, stop().Path, func(p *pcapng.Packet) {
		switch {
		case p.Process == nil && !slices.Equal(p.Comments, sockets.Changed):
			t.Fatalf("a packet says neither its process nor that it is unknown: %q", p.Comments)
		case p.Process == nil:
			unknown++
		case p.Process.Reason != pcapng.ProcessKnown:
		case p.Process.Comm != "a" && p.Process.Comm != "fifteen letters" && p.Process.Comm != "sockets":
			t.Fatalf("a packet names %+v", p.Process)
		default:
			named++
		}
	})
	return named, unknown
}

// TestPortIsUsedAgain has a process that ends, and another one that gets its port. A later packet must not name the first one.
func TestPortIsUsedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.start()
	const port = 7000
	var pids []uint32
	for range 10 {
		once := w.Run(port, w.Program, "once")
		w.Ask("udp", podnet.TargetIP, port, 1)
		if err := once.Wait(); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, uint32(once.Process.Pid))
	}
	var got []uint32
	sockets.EachPacket(t, stop().Path, func(p *pcapng.Packet) {
		if at, ok := sockets.TargetPort(p.Data); ok && at == port && p.Process.Reason == pcapng.ProcessKnown {
			got = append(got, p.Process.PID)
		}
	})
	var want []uint32
	for _, pid := range pids {
		want = append(want, pid, pid) // a question and an answer
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("PIDs (-want +got):\n%s", diff)
	}
}

// TestLoopbackNamesTheReceiver has two processes that talk to each other. One is the test's own: the capture takes each process of the
// node for one of the Pod, so that no other test may run.
func TestLoopbackNamesTheReceiver(t *testing.T) {
	w := newWorld(t)
	server := w.Run(7000, w.Program, "all")
	stop := w.startWith("lo", &backend.Processes{})
	w.AskFrom(w.Target, "udp", podnet.TargetIP, 7002, 20)
	w.AskFrom(w.Target, "tcp", podnet.TargetV6, 7001, 20)
	counts := map[string]int{}
	sockets.EachPacket(t, stop().Path, func(p *pcapng.Packet) {
		ports, ok := sockets.PortsOf(p.Data)
		if !ok {
			return
		}
		want := os.Getpid()
		if ports[1] == 7001 || ports[1] == 7002 {
			want = server.Process.Pid
		}
		if p.Process.Reason == pcapng.ProcessKnown && int(p.Process.PID) == want {
			counts["right"]++
		} else {
			counts[fmt.Sprint(ports, p.Process)]++
		}
	})
	if len(counts) != 1 || counts["right"] < 80 {
		t.Errorf("packets over loopback: %v", counts)
	}
}

// forward makes the target a router to a network behind the peer.
func forward(t *testing.T, target *os.File, network string) {
	t.Helper()
	_, to, err := net.ParseCIDR(network)
	if err != nil {
		t.Fatal(err)
	}
	podnet.In(t, target, func(h *netlink.Handle) error {
		return h.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(podnet.PeerIP)})
	})
	err = links.InNetNS(int(target.Fd()), func() error {
		return os.WriteFile("/proc/sys/net/ipv4/conf/eth0/forwarding", []byte("1"), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestNoProcess has packets that belong to no process, and some whose process cannot be known.
func TestNoProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Run(7000, w.Program, "all")
	w.Run(7010, w.Program, "all")
	w.Run(7020, w.Program, "any")
	stop := w.start()
	in := func(ip, network string, port int) {
		err := links.InNetNS(int(w.Peer.Fd()), func() error {
			c, err := net.Dial(network, net.JoinHostPort(ip, strconv.Itoa(port))) // Go allows broadcasts
			if err == nil {
				_, err = c.Write([]byte("anyone?"))
				_ = c.Close()
			}
			return err
		})
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
	for range 64 { // resets, which the kernel sends by a raw socket of its own
		in(podnet.TargetIP, "tcp", 6000)
	}
	in(podnet.TargetIP, "udp", 6001)
	in("10.77.0.255", "udp", 6002)
	w.Ask("udp", podnet.TargetIP, 7002, 1)
	forward(t, w.Target, "10.99.0.0/24")
	podnet.SendRaw(t, w.Peer, "peer0", false, udpFrame(podnet.MAC(t, w.Target, "eth0"), "10.99.0.7", 7022), udpFrame(podnet.MAC(t, w.Target, "eth0"), podnet.TargetIP, 7022))
	withRules := os.Getenv(sockets.ProgramsVar) == ""
	if withRules {
		nft := exec.Command("nft", "add table ip t; add chain ip t c { type nat hook prerouting priority -100; }")
		nft.Stderr = os.Stderr
		if err := links.InNetNS(int(w.Target.Fd()), nft.Run); err != nil {
			t.Fatalf("add a chain (make deps installs nft): %v", err)
		}
	}
	w.Ask("udp", podnet.TargetIP, 7012, 1)
	got := map[uint16]map[pcapng.ProcessReason]bool{}
	sockets.EachPacket(t, stop().Path, func(p *pcapng.Packet) {
		if port, ok := sockets.TargetPort(p.Data); ok {
			if got[port] == nil {
				got[port] = map[pcapng.ProcessReason]bool{}
			}
			got[port][p.Process.Reason] = true
		}
	})
	wantWithRules := []pcapng.ProcessReason{pcapng.ProcessKnown}
	if withRules {
		wantWithRules = append(wantWithRules, pcapng.ProcessNetfilter)
	}
	for port, want := range map[uint16][]pcapng.ProcessReason{
		6000: {pcapng.ProcessNoReceiver, pcapng.ProcessKernel}, 6001: {pcapng.ProcessNoReceiver}, 6002: {pcapng.ProcessMulticast},
		7002: {pcapng.ProcessKnown}, 7012: wantWithRules,
		7022: {pcapng.ProcessKnown, pcapng.ProcessNoReceiver},
	} {
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got[port]))); diff != "" {
			t.Errorf("port %d (-want +got):\n%s", port, diff)
		}
	}
}

// Rules of a device run after the capture, and can change the port of a packet. Packets of a socket without a connection do not name its
// process then, also if the socket is remembered.
func TestRulesOfADevice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Run(7000, w.Program, "all")
	w.Run(7010, w.Program, "all")
	stop := w.start()
	const before, after = 5, 20
	w.Ask("udp", podnet.TargetIP, 7002, before)
	nft := exec.Command("nft", `add table netdev t; add chain netdev t c { type filter hook ingress device "eth0" priority 0; }; `+
		`add rule netdev t c udp dport 7002 udp dport set 7012`)
	nft.Stderr = os.Stderr
	if err := links.InNetNS(int(w.Target.Fd()), nft.Run); err != nil {
		t.Fatalf("add a rule (make deps installs nft): %v", err)
	}
	for range after {
		podnet.SendRaw(t, w.Peer, "peer0", false, udpFrame(podnet.MAC(t, w.Target, "eth0"), podnet.TargetIP, 7002))
	}
	got := map[pcapng.ProcessReason]int{}
	sockets.EachPacket(t, stop().Path, func(p *pcapng.Packet) {
		if ports, ok := sockets.PortsOf(p.Data); ok && ports[1] == 7002 {
			got[p.Process.Reason]++
		}
	})
	if diff := cmp.Diff(map[pcapng.ProcessReason]int{pcapng.ProcessKnown: before, pcapng.ProcessNetfilter: after}, got); diff != "" {
		t.Errorf("packets to the port (-want +got):\n%s", diff)
	}
}

// TestContainers has a Pod with two containers, and a process outside of the Pod in its network namespace.
func TestContainers(t *testing.T) {
	t.Parallel()
	for hierarchy, root := range map[string]string{"v2": sockets.Cgroup2(), "v1": "/sys/fs/cgroup/pids"} {
		t.Run(hierarchy, func(t *testing.T) {
			privileged.Need(t)
			if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
				t.Skip("this machine does not have that hierarchy")
			}
			testContainers(t, root, hierarchy == "v1")
		})
	}
}

func testContainers(t *testing.T, root string, v1 bool) {
	t.Helper()
	w := newWorld(t)
	base := filepath.Join(root, fmt.Sprintf("sonde-capture-%d", os.Getpid()))
	pod := filepath.Join(base, "pod")
	web, log := filepath.Join(pod, "web"), filepath.Join(pod, "log")
	for _, dir := range []string{base, pod, web, log} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sockets.RemoveCgroup(t, dir) })
	}
	var st unix.Stat_t
	if err := unix.Stat(pod, &st); err != nil {
		t.Fatal(err)
	}
	first := w.RunIn(web, 7000, w.Program, "all")
	w.RunIn(log, 7100, w.Program, "all")
	w.RunIn(log, 7400, w.Program, "all") // two processes of one container
	w.Run(7200, w.Program, "all")        // outside
	container := func(pid int) string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		for _, name := range []string{"web", "log"} {
			if strings.Contains(string(b), "/pod/"+name+"\n") {
				return name
			}
		}
		return ""
	}
	stop := w.startWith("eth0", &backend.Processes{PID: first.Process.Pid, Cgroup: st.Ino, Level: 2, CgroupV1: v1, Container: container})
	w.RunIn(web, 7300, w.Program, "all")
	for range 10 {
		for _, port := range []int{7002, 7102, 7202, 7302, 7402} {
			w.Ask("udp", podnet.TargetIP, port, 20)
		}
	}
	wrong := map[string]int{}
	right := map[string]int{}
	sockets.EachPacket(t, stop().Path, func(p *pcapng.Packet) {
		port, ok := sockets.TargetPort(p.Data)
		if !ok || port < 7000 {
			return
		}
		want := map[uint16]string{70: "web", 71: "log", 73: "web", 74: "log"}[port/100]
		switch {
		case port/100 == 72 && p.Process.Reason == pcapng.ProcessOutside, p.Process.Container == want && slices.Contains(w.PIDs[port], p.Process.PID):
			right[want]++
		default:
			wrong[fmt.Sprint(port/100, ": ", p.Process)]++
		}
	})
	if len(wrong) > 0 || len(right) != 3 {
		t.Errorf("right %v, wrong %v", right, wrong)
	}
}
