package capture

import (
	"bufio"
	"context"
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
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
	"github.com/sonde-operator/sonde/test/privileged"
	"github.com/sonde-operator/sonde/test/wireshark"
)

// startNaming starts a capture whose packets name processes. The result ends it.
func startNaming(t *testing.T, w *socketWorld, cand candidate) (stop func() Result) {
	t.Helper()
	return startWith(t, w, cand, &backend.Processes{})
}

// startWith is startNaming for the processes of a Pod.
func startWith(t *testing.T, w *socketWorld, cand candidate, p *backend.Processes) (stop func() Result) {
	t.Helper()
	return startOn(t, w, "eth0", cand, p)
}

// startOn is startWith on another interface.
func startOn(t *testing.T, w *socketWorld, iface string, cand candidate, p *backend.Processes) (stop func() Result) {
	t.Helper()
	w.results = t.TempDir()
	c, err := cand.engine().Open(&Config{NetNS: w.target, Dir: w.results, Base: "named", Interfaces: []string{iface}, Processes: p})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	done := make(chan Result, 1)
	go func() { done <- c.Run(ctx) }()
	return func() Result {
		cancel()
		r := <-done
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if p := r.Account.Processes; p == nil || p.Message != "" {
			t.Fatalf("processes were not named: %+v", p)
		}
		return r
	}
}

// TestProcesses has programs in three languages, with sockets that are older and younger than the capture.
func TestProcesses(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		if cand.name == afPacket.name {
			continue
		}
		t.Run(cand.name, func(t *testing.T) {
			w := newSocketWorld(t)
			start := func(base int) {
				w.run(base, w.program, "all")
				w.run(base+10, os.Args[0], "all")
				if os.Getenv(programsVar) == "" {
					w.run(base+20, "python3", "testdata/sockets.py", "all")
				}
			}
			ask := func(base int) {
				for port := base; w.pids[uint16(port)] != nil; port += 10 {
					w.ask("tcp", targetIP, port, 50)
					w.ask("tcp", targetV6, port+1, 50)
					w.ask("udp", targetIP, port+2, 50)
					w.ask("udp", targetV6, port+3, 50)
				}
			}
			start(7000)
			stop := startNaming(t, w, cand)
			start(7100)
			for range 4 {
				ask(7000)
				ask(7100)
			}
			path := stop().Path
			all := w.scores(path)
			for port := range w.pids {
				s := all[port]
				if s == nil {
					t.Errorf("port %d: no packets", port)
				} else if s.wrong > 0 || s.unknown*1000 > s.right {
					t.Errorf("port %d: %d right, %d wrong, %d unknown: %v %s", port, s.right, s.wrong, s.unknown, s.reasons, s.example)
				}
			}
			if os.Getenv(programsVar) == "" {
				comments := wireshark.Run(t, "tshark", "-r", path, "-Y", "udp.port == 7002", "-T", "fields", "-e", "frame.comment")
				want := fmt.Sprintf("process: sockets, pid %d, uid 0", w.pids[7002][0])
				if got := strings.Count(comments, want+"\n"); got != all[7002].right {
					t.Errorf("tshark shows %d packets of the server, want %d", got, all[7002].right)
				}
			}
			if t.Failed() {
				t.Log("\n" + report(all))
			}
		})
	}
}

// TestProcessesChangeHands has sockets that one process makes and another one uses. None of their packets may name the wrong
// one. In the end each names the right one, or says that it is shared.
func TestProcessesChangeHands(t *testing.T) {
	t.Parallel()
	w := newSocketWorld(t)
	const (
		oldPass, oldFork, oldShare                                               = 7000, 7001, 7002
		pass, passListener, passAccepted, fork, share, prefork, spawning, cloned = 7100, 7101, 7102, 7103, 7104, 7105, 7106, 7107
	)
	w.answers, w.either = []uint16{passAccepted}, []uint16{prefork}
	w.run(oldPass, w.program, "pass")
	w.run(oldFork, w.program, "fork")
	w.run(oldShare, w.program, "share")
	stop := startNaming(t, w, preferred())
	w.run(pass, w.program, "pass")
	w.run(passListener, w.program, "pass-listener")
	w.run(passAccepted, w.program, "pass-accepted")
	w.run(fork, w.program, "fork")
	w.run(share, w.program, "share")
	w.run(prefork, w.program, "prefork")
	w.run(spawning, w.program, "spawn")
	w.run(cloned, w.program, "clone-files")
	settled := func(all map[uint16]*score) string {
		for port := range w.pids {
			if all[port] == nil {
				return fmt.Sprintf("port %d: no packets", port)
			}
		}
		for _, port := range []uint16{oldPass, oldFork, pass, fork, passListener, cloned} {
			if s := all[port]; s.right == 0 || s.last.Reason != pcapng.ProcessKnown {
				return fmt.Sprintf("port %d: the last packet has %v", port, s.last)
			}
		}
		for _, port := range []uint16{oldShare, share, prefork} {
			if all[port].reasons[pcapng.ProcessShared] == 0 {
				return fmt.Sprintf("port %d: shared by several, and no packet says so: %v", port, all[port].reasons)
			}
		}
		if s := all[spawning]; s.right < s.unknown {
			return fmt.Sprintf("port %d: of a process that starts others, %d right, %d unknown", spawning, s.right, s.unknown)
		}
		return ""
	}
	var all map[uint16]*score
	why := "no packets"
	for end := time.Now().Add(30 * time.Second); why != "" && time.Now().Before(end); {
		for range 20 {
			for _, port := range []int{oldPass, oldFork, oldShare, pass, fork, share, spawning, cloned} {
				w.ask("udp", targetIP, port, 5)
			}
			for _, port := range []int{passListener, passAccepted, prefork} {
				w.ask("tcp", targetIP, port, 5)
			}
		}
		all = w.scores(filepath.Join(w.results, "named.pcapng"))
		why = settled(all)
	}
	if why != "" {
		t.Error(why)
	}
	all = w.scores(stop().Path)
	for port, s := range all {
		if s.wrong > 0 {
			t.Errorf("port %d: %d wrong: %s", port, s.wrong, s.example)
		}
	}
	for _, port := range []uint16{oldShare, share} {
		if s := all[port]; s.right > 0 {
			t.Errorf("port %d: %d packets name one of two processes", port, s.right)
		}
	}
	if t.Failed() {
		t.Log("\n" + report(all))
	}
}

// TestProcessesShareAnIOUring has processes whose socket a child uses by an io_uring, without a descriptor of it. No packet may name the
// parent, whether it has a descriptor or not, and whether the child runs another program or not.
func TestProcessesShareAnIOUring(t *testing.T) {
	w := newSocketWorld(t)
	modes := map[int]string{0: "ring-exec", 1: "ring-exec-keep", 2: "ring-fork", 3: "ring-fork-keep"}
	for i, mode := range modes {
		w.run(7000+i, w.program, mode)
	}
	stop := startNaming(t, w, preferred())
	for i, mode := range modes {
		w.run(7100+i, w.program, mode)
	}
	time.Sleep(3 * time.Second) // for some scans
	all := w.scores(stop().Path)
	for i, mode := range modes {
		for when, base := range map[string]int{"before": 7000, "after": 7100} {
			s := all[uint16(base+i)]
			// A scan does not find a socket that is registered only.
			if s == nil || s.reasons[pcapng.ProcessForked]+s.reasons[pcapng.ProcessIOUring]+s.reasons[pcapng.ProcessUnseen] == 0 || s.right+s.wrong > 0 {
				t.Errorf("%s, started %s the capture: %+v", mode, when, s)
			}
		}
	}
}

// A process has a socket in an io_uring only, while another one has a descriptor of the socket. No packet may name that one, before
// or after scans.
func TestProcessesBesideAnIOUring(t *testing.T) {
	modes := []string{"ring-inherited", "ring-received", "ring-taken", "ring-hidden"}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			w := newSocketWorld(t)
			w.run(7000, w.program, mode)
			w.run(7002, w.program, "all") // has nothing to do with it, which nothing shows
			stop := startNaming(t, w, preferred())
			w.run(7100, w.program, mode)
			w.awaitLast(filepath.Join(w.results, "named.pcapng"), 7100, pcapng.ProcessIOUring)
			time.Sleep(2 * time.Second) // for some scans
			all := w.scores(stop().Path)
			for _, port := range []uint16{7000, 7100, 7006} {
				if s := all[port]; s == nil || s.reasons[pcapng.ProcessIOUring] == 0 || s.right+s.wrong > 0 {
					t.Errorf("port %d: %+v", port, s)
				}
			}
		})
	}
}

// awaitLast waits until the last packet of a port has a reason.
func (w *socketWorld) awaitLast(path string, port uint16, reason pcapng.ProcessReason) {
	w.tb.Helper()
	var s *score
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if s = w.scores(path)[port]; s != nil && s.last != nil && s.last.Reason == reason {
			return
		}
	}
	w.tb.Errorf("port %d: the last packet is not %q: %+v", port, reason, s)
}

// Names come back when the process with the io_uring has ended.
func TestProcessesAfterAnIOUring(t *testing.T) {
	w := newSocketWorld(t)
	w.run(7000, w.program, "all")
	const talks = 7006
	stop := startNaming(t, w, preferred())
	path := filepath.Join(w.results, "named.pcapng")
	w.awaitLast(path, talks, pcapng.ProcessKnown)
	ring := w.run(7100, w.program, "ring-alone")
	w.awaitLast(path, talks, pcapng.ProcessIOUring)
	w.awaitLast(path, 7100, pcapng.ProcessKnown)
	_ = ring.Process.Kill()
	_ = ring.Wait()
	w.awaitLast(path, talks, pcapng.ProcessKnown)
	if s := w.scores(stop().Path)[talks]; s.wrong > 0 {
		t.Errorf("%+v", s)
	}
}

// The only process with an io_uring has a name, and so have all if no files are registered. A process that has shared its io_uring
// has a name when the other one has ended.
func TestProcessesHaveIOUrings(t *testing.T) {
	for mode, reasons := range map[string]map[pcapng.ProcessReason]bool{
		"ring-alone": nil, "ring-empty": nil, "ring-lend": {pcapng.ProcessForked: true, pcapng.ProcessIOUring: true},
	} {
		for when, before := range map[string]bool{"before": true, "after": false} {
			t.Run(mode+" started "+when+" the capture", func(t *testing.T) {
				w := newSocketWorld(t)
				if before {
					w.run(7000, w.program, mode)
				}
				stop := startNaming(t, w, preferred())
				if !before {
					w.run(7000, w.program, mode)
				}
				w.awaitLast(filepath.Join(w.results, "named.pcapng"), 7000, pcapng.ProcessKnown)
				time.Sleep(time.Second)
				s := w.scores(stop().Path)[7000]
				if s.right == 0 || s.wrong > 0 || s.last.Reason != pcapng.ProcessKnown {
					t.Errorf("%+v", s)
				}
				if reasons == nil && s.unknown > s.right || reasons != nil && !before && s.unknown == 0 {
					t.Errorf("%d unknown: %+v", s.unknown, s)
				}
				for r := range s.reasons {
					if reasons != nil && !reasons[r] {
						t.Errorf("packets say %q", r)
					}
				}
			})
		}
	}
}

// A child shares its parent's descriptors, and uses a socket of the parent. The counts of threads and of users of the descriptors are
// equal, because a thread has descriptors of its own.
func TestProcessesShareATableOfFiles(t *testing.T) {
	w := newSocketWorld(t)
	program := w.run(7000, w.program, "share-table")
	stop := startNaming(t, w, preferred())
	if err := program.Process.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	w.awaitLast(filepath.Join(w.results, "named.pcapng"), 7000, pcapng.ProcessShared)
	if s := w.scores(stop().Path)[7000]; s.right+s.wrong > 0 {
		t.Errorf("%+v", s)
	}
}

// TestRightsForProcesses has a probe with the capabilities that each probe has.
func TestRightsForProcesses(t *testing.T) {
	t.Parallel()
	if !slices.ContainsFunc(each, func(c candidate) bool { return c.name == tcx.name }) {
		t.Skip("clsact needs NET_ADMIN, with or without processes")
	}
	n := newTestNet(t)
	keep := map[uintptr]bool{}
	for _, c := range privilege.Needed(false) {
		keep[uintptr(c.Bit)] = true
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+t.TempDir(), childBackend+"="+tcx.name, childNames+"=1")
	cmd.ExtraFiles = []*os.File{n.target}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	privileged.StartWith(t, cmd, keep)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "attached\n" {
		_ = cmd.Wait()
		t.Errorf("the capture says %q, %q, %v", line, said.String(), err)
	}
}

// A process that renames itself as fast as it can, while large packets of it are copied, cannot make its file unreadable. Each of its
// packets has one of its names, or none.
func TestRenamedProcess(t *testing.T) {
	t.Parallel()
	w := newSocketWorld(t)
	stop := startNaming(t, w, preferred())
	w.run(7000, w.program, "rename")
	time.Sleep(300 * time.Millisecond) // for some thousand renames
	named := 0
	eachPacket(t, stop().Path, func(p *pcapng.Packet) {
		switch {
		case p.Process == nil && !slices.Equal(p.Comments, changed):
			t.Fatalf("a packet says neither its process nor that it is unknown: %q", p.Comments)
		case p.Process == nil || p.Process.Reason != pcapng.ProcessKnown:
		case p.Process.Comm != "a" && p.Process.Comm != "fifteen letters" && p.Process.Comm != "sockets":
			t.Fatalf("a packet names %+v", p.Process)
		default:
			named++
		}
	})
	if named == 0 {
		t.Error("no packet names the process")
	}
}

// TestPortIsUsedAgain has a process that ends, and another one that gets its port. A later packet must not name the first one.
func TestPortIsUsedAgain(t *testing.T) {
	t.Parallel()
	w := newSocketWorld(t)
	stop := startNaming(t, w, preferred())
	const port = 7000
	var pids []uint32
	for range 10 {
		once := w.run(port, w.program, "once")
		w.ask("udp", targetIP, port, 1)
		if err := once.Wait(); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, uint32(once.Process.Pid))
	}
	var got []uint32
	eachPacket(t, stop().Path, func(p *pcapng.Packet) {
		if at, ok := targetPort(p.Data); ok && at == port && p.Process.Reason == pcapng.ProcessKnown {
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

// TestLoopbackNamesTheReceiver has two processes of the Pod that talk to each other.
func TestLoopbackNamesTheReceiver(t *testing.T) {
	t.Parallel()
	w := newSocketWorld(t)
	server := w.run(7000, w.program, "all")
	stop := startOn(t, w, "lo", preferred(), &backend.Processes{})
	w.peer = w.target // who asks
	w.ask("udp", targetIP, 7002, 20)
	w.ask("tcp", targetV6, 7001, 20)
	counts := map[string]int{}
	eachPacket(t, stop().Path, func(p *pcapng.Packet) {
		ports, ok := portsOf(p.Data)
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

// TestNoProcess has packets that belong to no process, and some whose process cannot be known.
func TestNoProcess(t *testing.T) {
	t.Parallel()
	w := newSocketWorld(t)
	w.run(7000, w.program, "all")
	w.run(7010, w.program, "all")
	w.run(7020, w.program, "any")
	stop := startNaming(t, w, preferred())
	in := func(ip, network string, port int) {
		err := links.InNetNS(int(w.peer.Fd()), func() error {
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
		in(targetIP, "tcp", 6000)
	}
	in(targetIP, "udp", 6001)
	in("10.77.0.255", "udp", 6002)
	w.ask("udp", targetIP, 7002, 1)
	w.forward(t, "10.99.0.0/24")
	w.sendFrames(t, udpFrame(w.mac(t, w.target, "eth0"), "10.99.0.7", 7022), udpFrame(w.mac(t, w.target, "eth0"), targetIP, 7022))
	withRules := os.Getenv(programsVar) == ""
	if withRules {
		nft := exec.Command("nft", "add table ip t; add chain ip t c { type nat hook prerouting priority -100; }")
		nft.Stderr = os.Stderr
		if err := links.InNetNS(int(w.target.Fd()), nft.Run); err != nil {
			t.Fatalf("add a chain (make deps installs nft): %v", err)
		}
	}
	w.ask("udp", targetIP, 7012, 1)
	got := map[uint16]map[pcapng.ProcessReason]bool{}
	eachPacket(t, stop().Path, func(p *pcapng.Packet) {
		if port, ok := targetPort(p.Data); ok {
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
	w := newSocketWorld(t)
	w.run(7000, w.program, "all")
	w.run(7010, w.program, "all")
	stop := startNaming(t, w, preferred())
	const before, after = 5, 20
	w.ask("udp", targetIP, 7002, before)
	nft := exec.Command("nft", `add table netdev t; add chain netdev t c { type filter hook ingress device "eth0" priority 0; }; `+
		`add rule netdev t c udp dport 7002 udp dport set 7012`)
	nft.Stderr = os.Stderr
	if err := links.InNetNS(int(w.target.Fd()), nft.Run); err != nil {
		t.Fatalf("add a rule (make deps installs nft): %v", err)
	}
	for range after {
		w.sendFrames(t, udpFrame(w.mac(t, w.target, "eth0"), targetIP, 7002))
	}
	got := map[pcapng.ProcessReason]int{}
	eachPacket(t, stop().Path, func(p *pcapng.Packet) {
		if ports, ok := portsOf(p.Data); ok && ports[1] == 7002 {
			got[p.Process.Reason]++
		}
	})
	if diff := cmp.Diff(map[pcapng.ProcessReason]int{pcapng.ProcessKnown: before, pcapng.ProcessNetfilter: after}, got); diff != "" {
		t.Errorf("packets to the port (-want +got):\n%s", diff)
	}
}

// forward makes the target a router to a network behind the peer.
func (n *testNet) forward(t *testing.T, network string) {
	t.Helper()
	_, to, err := net.ParseCIDR(network)
	if err != nil {
		t.Fatal(err)
	}
	n.in(t, n.target, func(h *netlink.Handle) error {
		return h.RouteAdd(&netlink.Route{Dst: to, Gw: net.ParseIP(peerIP)})
	})
	err = links.InNetNS(int(n.target.Fd()), func() error {
		return os.WriteFile("/proc/sys/net/ipv4/conf/eth0/forwarding", []byte("1"), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestContainers has a Pod with two containers, and a process outside of the Pod in its network namespace.
func TestContainers(t *testing.T) {
	t.Parallel()
	for hierarchy, root := range map[string]string{"v2": cgroup2(), "v1": "/sys/fs/cgroup/pids"} {
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
	w := newSocketWorld(t)
	base := filepath.Join(root, fmt.Sprintf("sonde-capture-%d", os.Getpid()))
	pod := filepath.Join(base, "pod")
	web, log := filepath.Join(pod, "web"), filepath.Join(pod, "log")
	for _, dir := range []string{base, pod, web, log} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeCgroup(t, dir) })
	}
	var st unix.Stat_t
	if err := unix.Stat(pod, &st); err != nil {
		t.Fatal(err)
	}
	first := w.runIn(web, 7000, w.program, "all")
	w.runIn(log, 7100, w.program, "all")
	w.runIn(log, 7400, w.program, "all") // two processes of one container
	w.run(7200, w.program, "all")        // outside
	container := func(pid int) string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		for _, name := range []string{"web", "log"} {
			if strings.Contains(string(b), "/pod/"+name+"\n") {
				return name
			}
		}
		return ""
	}
	stop := startWith(t, w, preferred(), &backend.Processes{PID: first.Process.Pid, Cgroup: st.Ino, Level: 2, CgroupV1: v1, Container: container})
	w.runIn(web, 7300, w.program, "all")
	for range 10 {
		for _, port := range []int{7002, 7102, 7202, 7302, 7402} {
			w.ask("udp", targetIP, port, 20)
		}
	}
	wrong := map[string]int{}
	right := map[string]int{}
	eachPacket(t, stop().Path, func(p *pcapng.Packet) {
		port, ok := targetPort(p.Data)
		if !ok || port < 7000 {
			return
		}
		want := map[uint16]string{70: "web", 71: "log", 73: "web", 74: "log"}[port/100]
		switch {
		case port/100 == 72 && p.Process.Reason == pcapng.ProcessOutside, p.Process.Container == want && slices.Contains(w.pids[port], p.Process.PID):
			right[want]++
		default:
			wrong[fmt.Sprint(port/100, ": ", p.Process)]++
		}
	})
	if len(wrong) > 0 || len(right) != 3 {
		t.Errorf("right %v, wrong %v", right, wrong)
	}
}

// removeCgroup removes a cgroup when its last process has ended.
func removeCgroup(t *testing.T, dir string) {
	t.Helper()
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = os.Remove(dir); err == nil {
			return
		}
	}
	t.Error(err)
}

// cgroup2 returns where the hierarchy of version 2 is mounted.
func cgroup2() string {
	if _, err := os.Stat("/sys/fs/cgroup/unified/cgroup.procs"); err == nil {
		return "/sys/fs/cgroup/unified"
	}
	return "/sys/fs/cgroup"
}

// The kernel interrupts a scan after a million files of other Pods. Packets name their process nevertheless.
func TestProcessesBesideManyDescriptors(t *testing.T) {
	w := newSocketWorld(t)
	privileged.Descriptors(t, 1_100_000)
	w.run(7000, w.program, "all") // the last process that a scan looks at
	stop := startWith(t, w, preferred(), &backend.Processes{ScanTime: time.Minute})
	w.ask("udp", targetIP, 7002, 20)
	if s := w.scores(stop().Path)[7002]; s == nil || s.right == 0 || s.wrong+s.unknown > 0 {
		t.Errorf("packets of a socket that is older than the capture: %+v", s)
	}
}

// Forks keep every scan from a result, so that nothing notices who takes a socket. After some seconds packets name no process, the
// account says why, and names come back when the forks end.
func TestProcessesThatForkOften(t *testing.T) {
	w := newSocketWorld(t)
	privileged.Descriptors(t, 100_000) // so that a scan takes longer than the pause between two forks
	w.results = t.TempDir()
	c, err := preferred().engine().Open(&Config{
		NetNS: w.target, Dir: w.results, Base: "named", Interfaces: []string{"eth0"}, Processes: &backend.Processes{ScanTime: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Result, 1)
	go func() { done <- c.Run(ctx) }()
	path := filepath.Join(w.results, "named.pcapng")
	forks := w.run(0, w.program, "fork-often")
	w.run(7001, w.program, "pass-listener")
	hangUp := w.call(7001)
	w.run(7000, w.program, "taken")
	w.awaitLast(path, 7000, pcapng.ProcessUnsettled)
	wrong := w.scores(path)[7000].wrong
	time.Sleep(5 * time.Second) // for more such scans
	if s := w.scores(path)[7000]; s.wrong != wrong || s.right > 0 {
		t.Errorf("packets name a process: %+v", s)
	}
	t.Logf("%d packets named the wrong process before", wrong)
	_ = forks.Process.Kill()
	_ = forks.Wait()
	w.awaitLast(path, 7000, pcapng.ProcessKnown)
	hangUp()
	cancel()
	r := <-done
	if s := w.scores(path)[7001]; s.wrong > 0 || s.reasons[pcapng.ProcessPassed] == 0 {
		t.Errorf("packets of a connection whose listener was passed, which scans have seen: %+v", s)
	}
	if p := r.Account.Processes; r.Err != nil || p == nil || !strings.Contains(p.Message, "fork so often") {
		t.Errorf("%v, account %+v", r.Err, p)
	}
	if s := w.scores(path)[7000]; s.wrong != wrong {
		t.Errorf("packets name the wrong process afterwards: %+v", s)
	}
}

// call keeps a connection to a port of the target, and sends over it until the result is called.
func (w *socketWorld) call(port int) (hangUp func()) {
	w.tb.Helper()
	var c net.Conn
	err := links.InNetNS(int(w.peer.Fd()), func() (err error) {
		c, err = net.Dial("tcp", net.JoinHostPort(targetIP, strconv.Itoa(port)))
		return err
	})
	if err != nil {
		w.tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 100); ; time.Sleep(20 * time.Millisecond) {
			if _, err := c.Write([]byte("still there")); err != nil {
				return
			}
			_, _ = c.Read(b)
		}
	}()
	hangUp = sync.OnceFunc(func() { _ = c.Close(); <-done })
	w.tb.Cleanup(hangUp)
	return hangUp
}

// If a scan has no time, the capture begins without names.
func TestProcessesWithoutTimeForAScan(t *testing.T) {
	w := newSocketWorld(t)
	c, err := preferred().engine().Open(&Config{NetNS: w.target, Dir: t.TempDir(), Base: "p", Interfaces: []string{"eth0"}, Processes: &backend.Processes{ScanTime: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if p := c.Account().Processes; p == nil || !strings.Contains(p.Message, "too many open files") {
		t.Errorf("%+v", p)
	}
}

// Processes of the Pod share more sockets than the probe has memory for. The account says so, and packets name no process if that
// was so from the beginning.
func TestProcessesWithTooManySockets(t *testing.T) {
	const sockets, processes = 700, 100
	for name, before := range map[string]bool{"before the capture": true, "during the capture": false} {
		t.Run(name, func(t *testing.T) {
			w := newSocketWorld(t)
			share := func() {
				inherited := make([]int, sockets)
				err := links.InNetNS(int(w.target.Fd()), func() (err error) {
					for i := range inherited {
						if inherited[i], err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				privileged.Heirs(t, processes, inherited)
			}
			if before {
				share()
			}
			c, err := preferred().engine().Open(&Config{
				NetNS: w.target, Dir: t.TempDir(), Base: "p", Interfaces: []string{"eth0"}, Processes: &backend.Processes{ScanTime: time.Minute},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan Result, 1)
			go func() { done <- c.Run(ctx) }()
			if !before {
				share()
			}
			const want = "more than 65536 sockets"
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if p := c.Account().Processes; p != nil && strings.Contains(p.Message, want) {
					break
				}
			}
			cancel()
			r := <-done
			if p := r.Account.Processes; r.Err != nil || p == nil || !strings.Contains(p.Message, want) {
				t.Errorf("%v, account %+v, want %q", r.Err, p, want)
			}
		})
	}
}

// TestProcessesUnavailable has captures whose packets cannot name processes: they say why.
func TestProcessesUnavailable(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cand      candidate
		processes backend.Processes
		want      string
	}{
		"packet sockets": {afPacket, backend.Processes{}, "packet sockets do not show processes"},
		"no cgroup":      {preferred(), backend.Processes{Unavailable: "the Pod has no cgroup"}, "the Pod has no cgroup"},
		"another cgroup": {preferred(), backend.Processes{PID: os.Getpid(), Cgroup: 1 << 60, Level: 1}, "not in the Pod's cgroup any more"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNet(t)
			c, err := tc.cand.engine().Open(&Config{NetNS: n.target, Dir: t.TempDir(), Base: "p", Interfaces: []string{"eth0"}, Processes: &tc.processes})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			r := c.Run(ctx)
			if p := r.Account.Processes; r.Err != nil || p == nil || !strings.Contains(p.Message, tc.want) {
				t.Errorf("%v, account %+v", r.Err, p)
			}
			found := false
			eachBlock(t, r.Path, func(b pcapng.Block) {
				i, ok := b.(*pcapng.Interface)
				found = found || ok && len(i.Comments) == 1 && strings.Contains(i.Comments[0], tc.want)
			})
			if !found {
				t.Error("the description of the interface does not say it")
			}
		})
	}
}
